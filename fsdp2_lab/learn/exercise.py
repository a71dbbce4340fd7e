"""The form of an exercise: a question, a measurement that answers it, a hint and a solution."""

from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from ..show.palette import BLUE, GREEN, GREY, VERMILION

_COLOURS = {"right": GREEN, "not yet": VERMILION, "unanswered": GREY, "note": BLUE}


@dataclass(frozen=True)
class Verdict:
    """What the page says to an answer."""

    kind: str
    text: str

    @property
    def right(self) -> bool:
        return self.kind == "right"

    def __repr__(self) -> str:
        return f"{self.kind}: {self.text}"

    def _repr_html_(self) -> str:
        style = f"border-left:4px solid {_COLOURS[self.kind]};padding-left:8px"
        return f'<div style="{style}"><b>{self.kind}</b>: {escape(self.text)}</div>'


@dataclass(frozen=True)
class Exercise:
    """A number to predict and then to measure.

    `measure` takes the evidence given to `check` (runs) and returns the number; an answer is right within
    `tolerance`, relative. `slips` are wrong numbers that people arrive at, from the evidence, with the reason.
    `how` labels the number: `predicted` where the evidence is an account.
    """

    name: str
    question: str
    unit: str
    measure: Callable[..., float]
    hint_text: str
    solution_text: str
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
        measured = self.measure(*evidence)
        found = f"{self.how} {measured:,.2f}{self.unit and ' ' + self.unit}, you said {answer:,.2f}."
        if self._close(answer, measured):
            return Verdict("right", f"{found} {self.solution_text}")
        for wrong, reason in self.slips:
            if self._close(answer, wrong(*evidence)):
                return Verdict("not yet", f"{found} {reason}")
        return Verdict("not yet", f"{found} {self.name}.hint() helps.")

    def hint(self) -> Verdict:
        return Verdict("note", self.hint_text)

    def solution(self) -> Verdict:
        return Verdict("note", self.solution_text)

    @property
    def _unit(self) -> str:
        return self.unit and f" in {self.unit}"

    def _close(self, answer: float, value: float) -> bool:
        return abs(answer - value) <= self.tolerance * abs(value)


@dataclass(frozen=True)
class Repair:
    """A stage with a fault, to be mended and run again.

    `fault` takes the evidence given to `check` (runs) and returns how wrong it is; at or under `tolerance` it is
    repaired. Each call of `hint` may ask for a later one of `hints`, the first of which says least.
    """

    name: str
    task: str
    fault: Callable[..., float]
    hints: tuple[str, ...]
    solution_text: str
    tolerance: float

    def check(self, *evidence) -> Verdict:
        """Measure whether the fault is gone."""
        fault = self.fault(*evidence)
        if fault <= self.tolerance:
            return Verdict("right", f"off by {fault:.1e}. {self.solution_text}")
        return Verdict("not yet", f"{self.task} They are off by {fault:.1e}. {self.name}.hint() helps.")

    def hint(self, number: int = 1) -> Verdict:
        """The first hint, or a later one by its number."""
        return Verdict("note", self.hints[min(max(number, 1), len(self.hints)) - 1])

    def solution(self) -> Verdict:
        return Verdict("note", self.solution_text)
