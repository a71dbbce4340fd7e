"""The forms of an exercise: a number, a choice or a stage to repair, each answered by a measurement."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from . import progress
from .verdict import Verdict


class NoEvidence(Exception):
    """The runs given to a check cannot answer it; the message says in one sentence what is missing."""


@dataclass(frozen=True, kw_only=True)
class _Question:
    """What all forms have. `hints` are graded: the first says least, each call of `hint` gives the next one."""

    name: str
    hints: tuple[str, ...]
    solution_text: str
    _calls: Iterator[int] = field(default_factory=lambda: count(1), init=False, repr=False, compare=False)

    def hint(self, number: int | None = None) -> Verdict:
        """The next hint, or the one of that number, from 1; the last is repeated."""
        given = min(max(number or next(self._calls), 1), len(self.hints))
        progress.note(self.name, hints=given)
        last = "" if given < len(self.hints) else f" After this, {self.name}.solution()."
        return Verdict("note", f"hint {given} of {len(self.hints)}: {self.hints[given - 1]}{last}")

    def solution(self) -> Verdict:
        """The solution; the table of progress says that it was looked at."""
        progress.note(self.name, solution=True)
        return Verdict("note", self.solution_text)

    def _right(self, text: str) -> Verdict:
        progress.note(self.name, right=True)
        return Verdict("right", text)

    def _not_yet(self, text: str) -> Verdict:
        progress.note(self.name, right=False)
        return Verdict("not yet", text)


@dataclass(frozen=True, kw_only=True)
class Exercise(_Question):
    """A number to predict and then to measure.

    `measure` takes the evidence given to `check` (runs, accounts) and returns the number; an answer is right within
    `tolerance`, relative. `slips` are wrong numbers that people arrive at, from the evidence, with the reason.
    `how` labels the number: `predicted` where the evidence is an account. `measure` and slips raise `NoEvidence`.
    """

    question: str
    unit: str
    measure: Callable[..., float]
    tolerance: float = 0.05
    slips: tuple[tuple[Callable[..., float], str], ...] = ()
    how: str = "measured"

    def check(self, answer: float | None, *evidence) -> Verdict:
        """Compare an answer with the measurement; `None` or `...` is unanswered, and the notebook goes on."""
        if answer is None or answer is ...:
            return Verdict(
                "unanswered", f"{self.question} Set `answer` to a number{self._unit}, then run this cell again."
            )
        if isinstance(answer, bool) or not isinstance(answer, int | float):
            return Verdict("not yet", f"expected a number{self._unit}, not {answer!r:.60}.")
        try:
            measured = self.measure(*evidence)
            found = f"{self.how} {measured:,.2f}{self.unit and ' ' + self.unit}, you said {answer:,.2f}."
            if self._close(answer, measured):
                return self._right(f"{found} {self.solution_text}")
            for wrong, reason in self.slips:
                if self._close(answer, wrong(*evidence)):
                    return self._not_yet(f"{found} {reason}")
        except NoEvidence as missing:
            return Verdict("note", str(missing))
        return self._not_yet(f"{found} {self.name}.hint() helps.")

    @property
    def _unit(self) -> str:
        return self.unit and f" in {self.unit}"

    def _close(self, answer: float, value: float) -> bool:
        return abs(answer - value) <= self.tolerance * abs(value)


@dataclass(frozen=True, kw_only=True)
class Choice(_Question):
    """One of a few options, of which the evidence tells the right one.

    `options` are keys to what they say; `measure` takes the evidence and returns the right key. `slips` are keys to
    the reason why people choose them. `measure` raises `NoEvidence`.
    """

    question: str
    options: dict[str, str]
    measure: Callable[..., str]
    slips: dict[str, str] = field(default_factory=dict)
    how: str = "measured"

    def check(self, answer: str | None, *evidence) -> Verdict:
        """Compare a key with what the evidence says; `None` or `...` is unanswered, and the notebook goes on."""
        listed = "; ".join(f"{key!r}: {text}" for key, text in self.options.items())
        if answer is None or answer is ...:
            return Verdict("unanswered", f"{self.question} Set `answer` to one of {listed}; then run this cell again.")
        if not isinstance(answer, str) or answer not in self.options:
            return Verdict("not yet", f"expected one of {', '.join(map(repr, self.options))}, not {answer!r:.60}.")
        try:
            right = self.measure(*evidence)
        except NoEvidence as missing:
            return Verdict("note", str(missing))
        if answer == right:
            return self._right(f"{self.how}: {self.options[right]}. {self.solution_text}")
        return self._not_yet(self.slips.get(answer, f"Not {self.options[answer]}. {self.name}.hint() helps."))


@dataclass(frozen=True, kw_only=True)
class Repair(_Question):
    """A stage with a fault, to be mended and run again.

    `fault` takes the evidence given to `check` (runs) and returns how wrong it is; at or under `tolerance` it is
    repaired. `unit` is what the fault is counted in; without one it is a relative difference. `fault` raises
    `NoEvidence`.
    """

    task: str
    fault: Callable[..., float]
    tolerance: float = 0.0
    unit: str = ""

    def check(self, *evidence) -> Verdict:
        """Measure whether the fault is gone. The stage as it was given counts as no answer, so no try is noted."""
        try:
            fault = self.fault(*evidence)
        except NoEvidence as missing:
            return Verdict("note", str(missing))
        found = f"off by {fault:,.4g} {self.unit}" if self.unit else f"off by {fault:.1e}"
        if fault <= self.tolerance:
            return self._right(f"{found}. {self.solution_text}")
        return Verdict("not yet", f"{self.task} It is {found}. {self.name}.hint() helps.")
