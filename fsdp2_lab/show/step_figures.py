"""The picture of a training step: who holds which rows, and what is gathered, reduced and freed when."""

from io import BytesIO

import pandas as pd

from ..contract.errors import UsageError
from ..contract.record import MEASURED_CUDA
from ..contract.units import format_bytes
from ..lab.runs import Run
from . import labels
from .step_drawing import draw_step, window_of
from .step_lanes import StepLanes, lanes_of, plain


class WhoHoldsWhat:
    """The picture of a step. In a notebook a `figure`, in a terminal a table; `units` and `rows` are its numbers."""

    def __init__(self, found: StepLanes, run: Run):
        self.units, self.rows = _unit_table(found), _row_table(found, run)
        self.title = labels.WHO_TITLE.format(found.row.step, found.record.rank, run.ranks)
        self.how = plain(run.how, 40) + (labels.WHO_SLOWED if not found.row.timed else "")
        if found.record.how == MEASURED_CUDA:
            self.how += labels.WHO_HOST
        self.figure = draw_step(found, run.ranks, self.title, self.how)

    def savefig(self, path) -> None:
        """Write the figure as a file, in the format of its name's ending. Raises `UsageError` where it cannot be."""
        try:
            self.figure.savefig(path)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"The figure cannot be written to {path} ({' '.join(why.split()):.200}).") from error

    def _repr_png_(self) -> bytes:
        data = BytesIO()
        self.figure.savefig(data, format="png")
        return data.getvalue()

    def __repr__(self) -> str:
        return f"{self.title}\n{self.how}\n{self.units.to_string(index=False)}\n\n{self.rows.to_string(index=False)}"


def who_holds_what(run: Run, step: int | None = None, rank: int = 0) -> WhoHoldsWhat:
    """One training step as one rank saw it: every unit's rows, when they are gathered and freed, and the memory.

    Of the latest metered step unless `step` says which; on a CPU the first two are metered. Works for every run
    whose script goes through `record.steps` with a model that `fully_shard` has sharded. Raises `UsageError` for
    another.
    """
    return WhoHoldsWhat(lanes_of(run, step, rank), run)


def _unit_table(found: StepLanes) -> pd.DataFrame:
    begin, end = window_of(found)
    rows = []
    for lane in found.lanes:
        own = next((unit for unit in found.record.units if unit.name == lane.units[0]), None)
        count = len(lane.units)
        gathered = lane.of_kind("gathered")
        seconds = sum(span.end_seconds - span.start_seconds for span in gathered) / count
        rows.append(
            (
                lane.label,
                format_bytes(own.whole_bytes if own else max((span.size_bytes or 0 for span in gathered), default=0)),
                format_bytes(own.held_bytes) if own else "–",
                f"{len(gathered) / count:g}",
                f"{seconds / (end - begin):.0%}",
                f"{len(lane.of_kind('all_gather')) / count:g}",
                f"{len(lane.of_kind('reduce_scatter')) / count:g}",
            )
        )
    return pd.DataFrame(rows, columns=labels.WHO_UNIT_COLUMNS)


def _row_table(found: StepLanes, run: Run) -> pd.DataFrame:
    """Which rows each rank holds, of the parameters that the records list in the first lanes."""
    rows = []
    for lane in found.lanes[:2]:
        for shards in zip(*lane.shards.values(), strict=True):
            rows.append([plain(shards[0].name, 60), f"{shards[0].global_rows:,}", *map(_rows_text, shards)])
    columns = [*labels.WHO_ROW_COLUMNS, *(labels.RANK.format(record.rank) for record in run.records)]
    return pd.DataFrame(rows, columns=columns)


def _rows_text(shard) -> str:
    if shard.first_row is None:
        return f"{shard.rows:,} of them"
    return f"{shard.first_row:,}–{shard.first_row + shard.rows - 1:,}" if shard.rows > 0 else "none"
