"""Figures of runs: losses, and bytes by stage and rank."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..contract.units import MIB
from ..lab.runs import Run
from . import labels
from .canvas import canvas, title
from .palette import HELD, PEAK, SERIES, rank_colour


def training(run: Run) -> Figure:
    """The loss of every step, and the bytes that each rank held and peaked at, stage by stage."""
    figure, (left, right) = canvas(2)
    _draw_losses(left, {run.id: run})
    _draw_stages(right, run)
    return figure


def loss_curves(runs: Mapping[str, Run]) -> Figure:
    """Losses of several runs, by label, in one picture."""
    figure, (ax,) = canvas()
    _draw_losses(ax, runs)
    return figure


def peaks(runs: Mapping[str, Run], quantity: str, text: str, stage: str | None = None) -> Figure:
    """One stage of several runs side by side: a bar for every rank, in MiB, under the title `text`.

    `quantity` is a column of the stage's record, such as `peak_bytes` or `bytes_after`; `stage` is the last
    of each run unless given.
    """
    figure, (ax,) = canvas()
    for position, run in enumerate(runs.values()):
        values = [getattr(row, quantity) / MIB for row in run.stage(stage or run.stage_names[-1])]
        for x, value in _rank_bars(ax, position, values):
            ax.text(x, value, f"{value:,.1f}", ha="center", va="bottom", fontsize=9)
    ax.set_xticks(range(len(runs)), list(runs))
    ax.set_ylabel(labels.MIB)
    ax.margins(y=0.15)
    most = max(run.ranks for run in runs.values())
    handles = [Patch(color=rank_colour(rank), label=labels.RANK.format(rank)) for rank in range(most)]
    ax.legend(handles=handles, frameon=False, fontsize=9)
    title(ax, text, ", ".join(dict.fromkeys(run.how for run in runs.values())))
    return figure


def _draw_losses(ax: Axes, runs: Mapping[str, Run]) -> None:
    for (label, run), colour, style in zip(runs.items(), SERIES, ("-", "--", ":", "-."), strict=False):
        steps = [step.step for step in run.records[0].steps if step.loss is not None] if run.records else []
        ax.plot(steps, run.losses, style, color=colour, label=label, linewidth=2)
    ax.set_xlabel(labels.STEP)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_ylabel(labels.LOSS)
    if len(runs) > 1:
        ax.margins(y=0.3)  # room for the legend: curves that agree leave it none
        ax.legend(frameon=False, fontsize=9, ncols=len(runs), loc="upper right")
    title(ax, labels.LOSSES_TITLE, ", ".join(dict.fromkeys(run.how for run in runs.values())))


def _draw_stages(ax: Axes, run: Run) -> None:
    for position, name in enumerate(run.stage_names):
        rows = [row for row in run.stage(name) if row.peak_bytes is not None]
        _rank_bars(ax, position, [row.peak_bytes / MIB for row in rows], PEAK)
        _rank_bars(ax, position, [row.bytes_after / MIB for row in rows], HELD)
    handles = [Patch(color=PEAK, label=labels.PEAK), Patch(color=HELD, label=labels.HELD)]
    ax.legend(handles=handles, frameon=False, fontsize=9)
    ax.set_xticks(range(len(run.stage_names)), run.stage_names, rotation=30, ha="right")
    ax.set_ylabel(labels.MIB)
    title(ax, labels.STAGES_TITLE, run.how)


def _rank_bars(
    ax: Axes, position: float, values: Sequence[float], colour: str | None = None
) -> list[tuple[float, float]]:
    # Ranks stand side by side around their stage's position; returns each bar's middle and height.
    width = 0.8 / max(1, len(values))
    tops = [(position + (rank - (len(values) - 1) / 2) * width, value) for rank, value in enumerate(values)]
    for rank, (x, value) in enumerate(tops):
        ax.bar(x, value, width * 0.92, color=colour or rank_colour(rank))
    return tops
