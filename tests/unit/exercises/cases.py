"""What the tests of all chapters' exercises share: fabricated runs, and each check on every kind of answer."""

from pathlib import Path

from fsdp2_lab.contract.record import RankRecord, StageRow, StepRow, write_record
from fsdp2_lab.lab.runs import Run

NONSENSE = ("12", True, [6.0], {}, float("nan"))


def recorded(
    folder: Path,
    ranks: int = 2,
    stages: list[StageRow] | None = None,
    steps: list[StepRow] | None = None,
    values: dict | None = None,
    each: list[dict] | None = None,
    **fields,
) -> Run:
    """A run as its ranks would have recorded it: the same stages, steps and noted values on each of them.

    `each` has what differs, a dict of noted values for every rank.
    """
    for rank in range(ranks):
        record = RankRecord(
            rank, ranks, rank, "host", 1, "cpu", "measured (CPU)", 0.0, {}, [], {}, "ok", stages or [], steps or []
        )
        record.values = (values or {}) | (each[rank] if each else {})
        for name, value in fields.items():
            setattr(record, name, value)
        write_record(folder, record)
    return Run(folder)


def assert_number(exercise, evidence: tuple, right: float, wrong: dict[float, str]) -> None:
    """A right number is right and labelled; each wrong one gets its reason; nothing and nonsense are answered."""
    verdict = exercise.check(right, *evidence)
    assert verdict.right and verdict.text.startswith(f"{exercise.how} "), verdict
    for answer, reason in wrong.items():
        verdict = exercise.check(answer, *evidence)
        assert verdict.kind == "not yet" and reason in verdict.text, (answer, verdict)
    for answer in NONSENSE:
        assert exercise.check(answer, *evidence).kind == "not yet", answer
    _assert_kind(exercise)


def assert_choice(exercise, evidence: tuple, right: str) -> None:
    """The right key is right; each other one is not; nothing and nonsense are answered."""
    assert exercise.check(right, *evidence).right
    for key in exercise.options:
        assert (exercise.check(key, *evidence).kind == "not yet") is (key != right), key
    for answer in ("none of these", 1, True, [right]):
        assert exercise.check(answer, *evidence).kind == "not yet"
    assert set(exercise.slips) <= set(exercise.options)
    _assert_kind(exercise)


def assert_repair(exercise, broken: tuple, mended: tuple) -> None:
    """The stage as it was given is not yet right and says by how much; the mended one is."""
    verdict = exercise.check(*broken)
    assert verdict.kind == "not yet" and "off by" in verdict.text
    assert exercise.check(*mended).right
    assert exercise.hint(1).text and exercise.solution().text


def _assert_kind(exercise) -> None:
    for nothing in (None, ...):
        assert exercise.check(nothing).kind == "unanswered"
    shown = exercise.check([])._repr_html_()
    assert shown.count("<") == 4  # div, b, and their ends
    assert exercise.hint().text and exercise.solution().text
