"""Figures of memory by what it is for: ways side by side, and one step's curve."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..contract.errors import UsageError
from ..contract.terms import TERMS
from ..contract.units import GIB, MIB, format_bytes, format_ranks
from ..lab.runs import Run
from ..predict.prediction import Prediction
from . import labels
from .canvas import canvas, title
from .palette import BLUE, GREY, TERM_COLOURS

_PHASES_NAMED = ("forward", "loss", "backward", "optimizer")


def ways(comparison) -> Figure:
    """A comparison's terms as stacked bars, a bar for each way, with its peak at the end."""
    columns = list(comparison.columns.values())
    figure, (ax,) = canvas(height=1.7 + 0.42 * len(columns))
    unit, name = unit_of(max(column.peak_bytes for column in columns))
    for place, column in enumerate(columns):
        end = _stack(ax, place, column.terms, unit, labels.TERM_NAMES) if column.terms else column.peak_bytes / unit
        if not column.terms:
            ax.barh(place, end, color=GREY, height=0.7)
        ax.text(end, place, f" {column.peak_bytes / unit:,.2f}", va="center", fontsize=9)
    ax.set_yticks(range(len(columns)), [column.how for column in columns])
    ax.invert_yaxis()
    ax.margins(x=0.14)
    ax.set_xlim(left=0)
    ax.set_xlabel(name)
    _legend(figure, ax, labels.TERM_NAMES)
    title(ax, comparison.script, labels.COMPARISON_TITLE.format(format_ranks(comparison.ranks)))
    return figure


def step_terms(runs: Mapping[str, Run], marks: Mapping[str, float] | None = None) -> Figure:
    """What rank 0 of several runs held at the peak of a later step, by what it is for, a bar a run.

    `marks` are bytes by the runs' labels, such as a formula's. A run whose bytes were not told apart has a grey bar.
    Raises `UsageError` for a run without two steps.
    """
    figure, (ax,) = canvas(height=1.7 + 0.36 * len(runs))
    if missing := [label for label, run in runs.items() if not run.peak_bytes]:
        raise UsageError(f"Run {missing[0]!r} has no second step: it goes through record.steps at least twice.")
    unit, name = unit_of(max(run.peak_bytes for run in runs.values()))
    for place, (label, run) in enumerate(runs.items()):
        terms = run.terms or {"other": run.peak_bytes}
        end = _stack(ax, place, terms, unit, labels.RANK_TERM_NAMES)
        ax.text(end, place, f" {end:,.1f}", va="center", fontsize=9)
        if marks and label in marks:
            x = marks[label] / unit
            ax.plot([x, x], [place - 0.42, place + 0.42], color="black", linewidth=2, label=labels.FORMULA)
    ax.set_yticks(range(len(runs)), list(runs))
    ax.invert_yaxis()
    ax.margins(x=0.1)
    ax.set_xlim(left=0)
    ax.set_xlabel(name)
    _legend(figure, ax, labels.RANK_TERM_NAMES)
    title(ax, labels.STEP_TERMS_TITLE, ", ".join(dict.fromkeys(run.how for run in runs.values())))
    return figure


def memory_curve(run: Run, step: int = 1, rank: int = 0) -> Figure:
    """Live bytes of one rank through one metered step, with its phases and its peak.

    Raises `UsageError` for a step without a curve: on a CPU the first two have one.
    """
    row = next((row for record in run.records if record.rank == rank for row in record.steps if row.step == step), None)
    if row is None or not row.curve:
        raise UsageError(f"Rank {rank} of {run.id} has no curve of step {step}; on a CPU the first two steps have one.")
    figure, (ax,) = canvas(height=3.2)
    unit, name = unit_of(row.peak_bytes)
    seconds, live = [point.seconds for point in row.curve], [point.live_bytes / unit for point in row.curve]
    peak = max(row.curve, key=lambda point: point.live_bytes)
    ax.annotate(
        format_bytes(peak.live_bytes),
        (peak.seconds, peak.live_bytes / unit),
        xytext=(6, 2),
        textcoords="offset points",
        fontsize=9,
    )
    _draw_curve(ax, seconds, live, row.phases)
    ax.set(xlabel=labels.CURVE_SECONDS if not row.timed else labels.SECONDS, ylabel=name)
    title(ax, labels.CURVE_TITLE.format(step, rank), run.how)
    return figure


def dry_run_curve(prediction: Prediction) -> Figure:
    """Live bytes of a dry run's later step, in the order of its marks, at the deepest depth that was played.

    Raises `UsageError` for a prediction that was not played.
    """
    if not prediction.curve:
        raise UsageError(f"A prediction by {prediction.how} has no curve; `dryrun` gives one.")
    figure, (ax,) = canvas(height=3.2)
    unit, name = unit_of(max(point["live_bytes"] for point in prediction.curve))
    live = [point["live_bytes"] / unit for point in prediction.curve]
    phases = {}
    for place, point in enumerate(prediction.curve):
        phases.setdefault(point["phase"], place)
    _draw_curve(ax, range(len(live)), live, phases)
    ax.set(xlabel=labels.DRY_RUN_MARKS, ylabel=name)
    layers = f", {prediction.depths_played[-1]} layers" if prediction.depths_played else ""
    title(ax, labels.DRY_RUN_TITLE.format(format_ranks(prediction.ranks)), prediction.how + layers)
    return figure


def _draw_curve(ax: Axes, places: Sequence[float], live: list[float], phases: dict[str, float]) -> None:
    ax.fill_between(places, live, color=BLUE, alpha=0.25, step="mid", linewidth=0)
    ax.plot(places, live, color=BLUE, linewidth=1.4, drawstyle="steps-mid")
    ax.set(xlim=(0, places[-1]), ylim=(0, max(live) * 1.22))
    _mark_phases(ax, phases, places[-1])


def _stack(ax: Axes, place: int, terms: dict[str, int], unit: int, names: dict[str, str]) -> float:
    end = 0.0
    for term in TERMS:
        if size := terms.get(term, 0) / unit:
            ax.barh(place, size, left=end, color=TERM_COLOURS[term], height=0.7, label=names[term])
            end += size
    return end


def _legend(figure: Figure, ax: Axes, names: dict[str, str]) -> None:
    """One handle for each term that was drawn, in the order of all tables, and for what else has a label."""
    handles = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    ordered = [name for name in names.values() if name in handles]
    ordered += [name for name in handles if name not in ordered]
    figure.legend(
        [handles[name] for name in ordered], ordered, frameon=False, fontsize=9, ncols=4, loc="outside lower left"
    )


def _mark_phases(ax: Axes, phases: dict[str, float], end: float) -> None:
    """A line where each phase begins, and its name above the curve where there is room for it."""
    begun = [*phases.items(), ("", end)]
    for (phase, began), (_, ended) in pairwise(begun):
        if began:
            ax.axvline(began, color=GREY, linewidth=0.8, linestyle=":")
        if phase in _PHASES_NAMED and (ended - began > 0.06 * end or began > 0.85 * end):  # there is room
            place, side = (ended, "right") if began > 0.85 * end else (began + 0.005 * end, "left")
            ax.text(place, 0.98, phase, transform=ax.get_xaxis_transform(), ha=side, va="top", fontsize=9)


def unit_of(size_bytes: int) -> tuple[int, str]:
    """Bytes of the unit in which a figure up to this size reads best, and its name."""
    return (GIB, labels.GIB) if size_bytes >= GIB else (MIB, labels.MIB)
