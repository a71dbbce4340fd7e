"""One job, its memory found in every way there is: predicted, dry run, rehearsed and measured, side by side."""

from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path

import pandas as pd

from ..contract import workspace
from ..contract.errors import StageFailed, StageTimeout, UsageError
from ..contract.settings import parse_settings, to_argv
from ..contract.terms import TERMS, in_order
from ..contract.units import MIB, format_bytes, format_ranks
from ..lab.launcher import TIMEOUT_SECONDS, execute
from ..lab.live.progress import make_progress
from ..lab.machine import free_bytes, machine
from ..lab.runs import Run
from ..predict.account import account
from ..predict.dryrun import dryrun_script
from ..predict.process import check_request, reads_settings
from ..predict.rehearse import rehearse_script
from . import labels

WAYS = ("predicted", "dry run", "rehearsed", "measured")
_STEPS = 2  # the first makes the optimizer's states, the second is as all later ones
_PROCESS_BYTES = 512 * MIB  # about what Python and its libraries occupy in a rank
_SAME = 0.001  # of the peak: a term that differs by less is the same
_ACCOUNTED = ("model", "batch", "seq", "param_dtype", "compute_dtype", "checkpointing", "reshard")


@dataclass
class Column:
    """One way's answer: `how` labels it; bytes of one rank, and what they are for at the peak of a later step."""

    how: str
    peak_bytes: int
    step0_peak_bytes: int
    terms: dict[str, int] = field(default_factory=dict)


@dataclass
class Comparison:
    """Memory of one rank of a job by way; `notes` say what is missing, and what a difference is.

    Shows itself as a table; `error(way)` is for assertions, `frame` for further work, and `run` the measured run.
    """

    script: str
    ranks: int
    columns: dict[str, Column] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    parameters: int | None = None
    run: Run | None = None

    def error(self, way: str) -> float:
        """How far a way's peak of a later step is from the measured one: 0.01 is one percent.

        Raises `UsageError` where either is missing.
        """
        for name in (way, "measured"):
            if name not in self.columns:
                why = "; ".join(self.notes) or "it was not asked for"
                raise UsageError(f"{name!r} is not in this comparison, which has {', '.join(self.columns)}: {why}")
        return abs(self.columns[way].peak_bytes / self.columns["measured"].peak_bytes - 1)

    @property
    def frame(self) -> pd.DataFrame:
        """Bytes: a row for each term at the peak of a later step, then the two peaks; a column for each way."""
        found = {term for column in self.columns.values() for term in column.terms}
        rows = {
            labels.TERM_NAMES[term]: [c.terms.get(term, 0) for c in self._answers] for term in TERMS if term in found
        }
        rows[labels.STEP_PEAK] = [column.peak_bytes for column in self._answers]
        rows[labels.FIRST_PEAK] = [column.step0_peak_bytes for column in self._answers]
        return pd.DataFrame(rows, index=[column.how for column in self._answers]).T

    @property
    def table(self) -> pd.DataFrame:
        """The frame to be read, with how far each way's peak is from the measured one."""
        table = self.frame.map(format_bytes)
        if "measured" in self.columns:
            table.loc[labels.AGAINST_MEASURED] = [self._against_measured(column) for column in self._answers]
        return table

    def to_json(self) -> dict:
        """All of it as plain values, without the run's records."""
        columns = {way: asdict(column) for way, column in self.columns.items()}
        run = self.run and str(self.run.dir)
        return {"script": self.script, "ranks": self.ranks, "columns": columns, "notes": self.notes, "run_dir": run}

    @property
    def _answers(self) -> list[Column]:
        return list(self.columns.values())

    def _against_measured(self, column: Column) -> str:
        return f"{(column.peak_bytes / self.columns['measured'].peak_bytes - 1) * 100:+.3f} %"

    @property
    def _heading(self) -> str:
        return f"{self.script}, one of {format_ranks(self.ranks)}; bytes by what they are for {labels.TERM}"

    def __str__(self) -> str:
        return "\n".join([self._heading, self.table.to_string(), *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        notes = "".join(f"<br>{escape(line)}" for line in self.notes)
        return f"{self.table.to_html(border=0)}<p><small>{escape(self._heading)}{notes}</small></p>"


def compare(
    stage: str, ranks: int | None = None, *, ways=WAYS, timeout: float = TIMEOUT_SECONDS, warm=None, **settings
) -> Comparison:
    """Find one rank's memory in a stage that trains in several ways, and put the answers side by side.

    `ways` are of `WAYS`; one that cannot be taken here (too many ranks to measure, no closed form for the model)
    is left out, and a note says why. Raises `UsageError`, and `StageFailed` or `StageTimeout` where the measured
    run does not end well; the error's `comparison` has the other ways' answers then.
    """
    script = workspace.script_path(stage)
    if not script.exists():
        raise UsageError(f"No stage {stage!r}: {script.parent.name}/{script.name} is not written.")
    return compare_script(script, ranks, to_argv(settings), ways, timeout, warm)


def compare_script(
    script: Path,
    ranks: int | None,
    argv: list[str],
    ways: tuple[str, ...] = WAYS,
    timeout: float = TIMEOUT_SECONDS,
    warm: bool | None = False,
) -> Comparison:
    """The same for any stage script and the command line of its settings."""
    if unknown := [way for way in ways if way not in WAYS]:
        raise UsageError(f"{unknown[0]!r:.40} is no way to find memory: expected {', '.join(WAYS)}.")
    ranks = machine().default_ranks if ranks is None else ranks
    check_request(script, ranks, argv, timeout)
    comparison, refused = Comparison(_short(script), ranks), []
    for way in [way for way in WAYS if way in ways]:
        try:
            comparison.columns[way] = _FINDERS[way](comparison, script, argv, timeout, warm)
        except UsageError as error:
            refused.append(error)
            comparison.notes.append(f"not {way}: {error}")
        except StageFailed as error:
            error.comparison = comparison
            raise
    if not comparison.columns:
        raise refused[0]
    comparison.notes += explanation(comparison)
    return comparison


def _predict(comparison: Comparison, script: Path, argv: list[str], _timeout, _warm) -> Column:
    if not reads_settings(script):
        raise UsageError(f"{comparison.script} does not read our settings, so the closed form knows no sizes.")
    settings = parse_settings(argv)
    predicted = account(
        ranks=comparison.ranks, device=_device(), **{name: getattr(settings, name) for name in _ACCOUNTED}
    )
    return Column(predicted.label, predicted.peak_bytes, predicted.step0_peak_bytes, in_order(predicted.terms))


def _dry_run(comparison: Comparison, script: Path, argv: list[str], timeout: float, _warm) -> Column:
    played = dryrun_script(script, comparison.ranks, argv, _device(), timeout=timeout)
    comparison.parameters = played.parameters
    return Column(played.how, played.peak_bytes, played.step0_peak_bytes, played.terms)


def _rehearse(comparison: Comparison, script: Path, argv: list[str], timeout: float, _warm) -> Column:
    _check_free_memory(comparison, ranks=1)
    played = rehearse_script(script, comparison.ranks, argv, timeout)
    return Column(played.how, played.peak_bytes, played.step0_peak_bytes, played.terms)


def _measure(comparison: Comparison, script: Path, argv: list[str], timeout: float, warm: bool | None) -> Column:
    machine().check_ranks(comparison.ranks)
    _check_free_memory(comparison, comparison.ranks)
    if reads_settings(script) and "--steps" not in argv:
        argv = [*argv, "--steps", str(_STEPS)]
    run = execute(script, comparison.ranks, argv, timeout, make_progress(), warm)
    if run.status != "ok":
        raise (StageTimeout if run.status == "timeout" else StageFailed)(run.failure(), run)
    comparison.run = run
    return measured_column(comparison)


def measured_column(comparison: Comparison) -> Column:
    """The lowest of the ranks that hold as much as rank 0, whose part the other ways play.

    Raises `UsageError` for a run without two metered steps on each rank.
    """
    records = comparison.run.records
    if not records or any(len([s for s in r.steps if s.peak_bytes]) < _STEPS for r in records):
        raise UsageError(f"{comparison.run.id} has no {_STEPS} metered steps on every rank.")
    alike = [record for record in records if record.stages[-1].bytes_after == records[0].stages[-1].bytes_after]
    lowest = min(alike, key=lambda record: record.steps[1].peak_bytes)
    highest_bytes = max(record.steps[1].peak_bytes for record in alike)
    if highest_bytes > lowest.steps[1].peak_bytes:
        comparison.notes.append(
            f"measured is rank {lowest.rank}; of the ranks with as many rows the highest peaked at "
            f"{format_bytes(highest_bytes)}"
        )
    first, later = lowest.steps[:_STEPS]
    return Column(comparison.run.how, later.peak_bytes, first.peak_bytes, later.terms)


_FINDERS = {"predicted": _predict, "dry run": _dry_run, "rehearsed": _rehearse, "measured": _measure}


def explanation(comparison: Comparison) -> list[str]:
    """What stands between the dry run and the measurement, term by term, each with its name."""
    if not {"dry run", "measured"} <= comparison.columns.keys():
        return []
    dry, measured = comparison.columns["dry run"], comparison.columns["measured"]
    if not measured.terms:
        return []
    lines = []
    for term in TERMS:
        residual = measured.terms.get(term, 0) - dry.terms.get(term, 0)
        if abs(residual) > _SAME * measured.peak_bytes:
            sign = "+" if residual > 0 else "−"
            why = labels.RESIDUALS.get(term, labels.UNEXPLAINED)
            lines.append(f"measured {sign}{format_bytes(abs(residual))} in {labels.TERM_NAMES[term]}: {why}")
    return lines or [labels.NO_RESIDUAL.format(f"{_SAME:.1%}")]


def _check_free_memory(comparison: Comparison, ranks: int) -> None:
    """Raises `UsageError` where real processes would need more than is free here; with GPUs, CUDA will say."""
    known = comparison.columns.get("dry run") or comparison.columns.get("predicted")
    if machine().gpus or not known:
        return
    # Rank 0 holds the whole weights once more while they are loaded, in float32.
    needed = ranks * (known.peak_bytes + _PROCESS_BYTES) + 4 * (comparison.parameters or 0)
    free = free_bytes()
    if needed > free:
        raise UsageError(f"it would take {format_bytes(needed)} or more, and {format_bytes(free)} are free.")


def _device() -> str:
    return "cuda" if machine().gpus else "cpu"


def _short(script: Path) -> str:
    return str(Path(script.parent.name) / script.name)
