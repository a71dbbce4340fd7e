"""What loading costs each rank's host: how far resident memory rises, beside what the rank keeps of it."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..contract.errors import UsageError
from ..contract.units import MIB, format_bytes, format_seconds
from ..lab.runs import Run
from . import labels
from .canvas import canvas, title
from .palette import PALE, rank_colour


def rises(run: Run) -> list[int]:
    """By rank, how far resident memory rose in a run's last stage above its end of the stage before, in bytes.

    Raises `UsageError` for a run of a single stage, and where resident memory was not recorded.
    """
    if len(run.stage_names) < 2:
        raise UsageError(f"{run.id} has no stage before the one that loads; launch a stage that comes after `shard`.")
    before, loading = (run.stage(name) for name in run.stage_names[-2:])
    pairs = [(now.rss_peak_bytes, then.rss_bytes) for now, then in zip(loading, before, strict=True)]
    if not pairs or None in [value for pair in pairs for value in pair]:
        raise UsageError(f"{run.id} recorded no resident memory; launch it again.")
    return [max(0, peak - then) for peak, then in pairs]


def loading(runs: Mapping[str, Run]) -> Figure:
    """The rise of resident memory in each run's last stage, a bar a rank; its shards are filled.

    Raises `UsageError` as `rises`.
    """
    figure, (ax,) = canvas()
    most = max(run.ranks for run in runs.values())
    width = 0.8 / most
    for place, run in enumerate(runs.values()):
        kept = [row.bytes_after or 0 for row in run.stage(run.stage_names[-1])]
        on_host = run.records[0].device == "cpu"  # on a GPU the shards are in its memory, not the host's
        for rank, (rise, own) in enumerate(zip(rises(run), kept, strict=True)):
            x = place + (rank - (run.ranks - 1) / 2) * width
            ax.bar(x, rise / MIB, width=0.9 * width, color=PALE, edgecolor=rank_colour(rank))
            if on_host:
                ax.bar(x, min(own, rise) / MIB, width=0.9 * width, color=rank_colour(rank))
            ax.text(x, rise / MIB, f"{rise / MIB:,.0f}", ha="center", va="bottom", fontsize=9)
    ax.set_xticks(range(len(runs)), list(runs))
    ax.set_ylabel(labels.MIB)
    ax.margins(y=0.15)
    handles = [Patch(color=rank_colour(rank), label=labels.RANK.format(rank)) for rank in range(most)]
    handles.append(Patch(facecolor=PALE, edgecolor="black", label=labels.LOADING_PASSING))
    ax.legend(handles=handles, frameon=False, fontsize=9)
    title(ax, labels.LOADING_TITLE, ", ".join(dict.fromkeys(run.how for run in runs.values())))
    return figure


def loading_table(runs: Mapping[str, Run]) -> pd.DataFrame:
    """The last stage of runs that load, a row a run: seconds, highest rise and sum of all. Raises as `rises`."""
    rows = []
    for label, run in runs.items():
        rise = rises(run)
        seconds = max(row.seconds for row in run.stage(run.stage_names[-1]))
        rows.append((label, run.ranks, format_seconds(seconds), *map(format_bytes, (max(rise), sum(rise))), run.how))
    return pd.DataFrame(rows, columns=labels.LOADING_COLUMNS).set_index(labels.LOADING_COLUMNS[0])
