"""What a way of sharding costs: collectives of a step, the step's peak and its time, side by side for several runs."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..contract.errors import UsageError
from ..contract.units import format_bytes, format_seconds
from ..lab.runs import Run
from . import labels
from .canvas import canvas, title
from .memory_figures import unit_of
from .palette import BLUE, PINK, SKY, YELLOW

_KINDS = {"all_gather": YELLOW, "reduce_scatter": PINK}  # as their buffers in all figures of memory


def compare_costs(runs: Mapping[str, Run]) -> pd.DataFrame:
    """A row a run: collectives of one step as rank 0 noted them in `collectives`, step peak and median step time.

    Raises `UsageError` for a run that noted none.
    """
    rows = []
    for label, run in runs.items():
        found = [format_bytes(run.peak_bytes), format_seconds(run.step_seconds)]
        rows.append((label, *_counts(run).values(), *found, run.how))
    return pd.DataFrame(rows, columns=labels.COSTS_COLUMNS).set_index(labels.COSTS_COLUMNS[0])


def costs(runs: Mapping[str, Run]) -> Figure:
    """The same as bars: collectives of one step, peak of a later step over ranks, median seconds of the timed steps.

    Raises `UsageError` for a run that noted no `collectives`, or that has no timed step.
    """
    if missing := [label for label, run in runs.items() if not (run.peak_bytes and run.step_seconds)]:
        raise UsageError(f"Run {missing[0]!r} has no timed step: on a CPU it takes more than two steps to have one.")
    figure, axes = canvas(3, height=1.75 + 0.3 * len(runs))
    unit, name = unit_of(max(run.peak_bytes for run in runs.values()))
    _draw_counts(axes[0], [_counts(run) for run in runs.values()])
    _draw_bars(axes[1], [run.peak_bytes / unit for run in runs.values()], BLUE, "{:,.1f}")
    _draw_bars(axes[2], [run.step_seconds for run in runs.values()], SKY, "{:.2f}")
    how = ", ".join(dict.fromkeys(run.how for run in runs.values()))
    texts = (labels.COSTS_TITLE, labels.PEAK_TITLE.format(name), labels.SECONDS_TITLE)
    for ax, text, got, room in zip(axes, texts, (labels.COUNTED, how, how), (1.4, 1.3, 1.3), strict=True):
        ax.set_yticks(range(len(runs)), list(runs) if ax is axes[0] else [""] * len(runs))
        ax.invert_yaxis()
        ax.set_xlim(0, room * ax.dataLim.x1 or 1)  # for the number beside the longest bar; one rank counts nothing
        ax.set_xticks([])
        ax.spines["bottom"].set_visible(False)
        ax.tick_params(length=0)
        title(ax, text, got)
    figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, fontsize=9, ncols=2, loc="outside lower left")
    return figure


def _counts(run: Run) -> dict[str, int]:
    counts = run.noted("collectives").get(0, {})
    if not isinstance(counts, dict) or not all(isinstance(counts.get(kind), int) for kind in _KINDS):
        raise UsageError(f"`collectives` of {run.id} is {counts!r:.60}: expected numbers of {', '.join(_KINDS)}.")
    return {kind: counts[kind] for kind in _KINDS}


def _draw_counts(ax: Axes, counts: list[dict[str, int]]) -> None:
    for place, kinds in enumerate(counts):
        left = 0
        for kind, number in kinds.items():
            label = labels.COLLECTIVE_NAMES[kind] if place == 0 else None
            ax.barh(place, number, left=left, color=_KINDS[kind], height=0.7, label=label)
            left += number
        ax.text(left, place, " " + " + ".join(map(str, kinds.values())), va="center", fontsize=9)


def _draw_bars(ax: Axes, values: list[float], colour: str, form: str) -> None:
    for place, value in enumerate(values):
        ax.barh(place, value, color=colour, height=0.7)
        ax.text(value, place, " " + form.format(value), va="center", fontsize=9)
