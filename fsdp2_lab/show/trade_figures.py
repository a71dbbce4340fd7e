"""The trade's figure: what waits for backward, by part, and the peak against a step's work."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..contract.units import format_ranks
from ..predict.trade import Trade
from . import labels
from .canvas import canvas, title
from .memory_figures import unit_of
from .palette import BLUE, TERM_COLOURS

_SMALL = 9
PARTS = ("block inputs", "norms", "attention", "MLP", "final norm", "rotary angles", "logits")


def trade_figure(now: Trade, curve: list[Trade], ranks: int) -> Figure:
    """Bytes between forward and backward on the left; on the right the peak for none to all blocks checkpointed."""
    figure, (left, right) = canvas(2, height=3.1)
    none = curve[0]
    _draw_parts(left, now, none)
    title(left, labels.TRADE_PARTS_TITLE, now.label)
    _draw_curve(right, now, curve)
    title(right, labels.TRADE_CURVE_TITLE.format(format_ranks(ranks)), now.label)
    return figure


def _draw_parts(ax: Axes, now: Trade, none: Trade) -> None:
    unit, name = unit_of(none.held_bytes)
    parts = [part for part in PARTS if none.held.get(part, 0) + now.held.get(part, 0) > 0.001 * none.held_bytes]
    limit = 1.3 * max([*none.held.values(), *now.held.values()]) / unit  # it stays while blocks are chosen
    for place, part in enumerate(parts):
        size, before = now.held.get(part, 0) / unit, none.held.get(part, 0) / unit
        ax.barh(place, size, color=TERM_COLOURS["logits" if part == "logits" else "activations"], height=0.7)
        ax.plot([before, before], [place - 0.35, place + 0.35], color="black", linewidth=1.2)
        is_between = before - size > 0.17 * limit  # there is room for the number
        ax.text(size if is_between else max(size, before), place, f" {size:,.2f}", va="center", fontsize=_SMALL)
    ax.set_yticks(range(len(parts)), parts, fontsize=_SMALL)
    ax.invert_yaxis()
    ax.set_xlim(0, limit)
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.set_xlabel(labels.TRADE_SUM.format(name, f"{now.held_bytes / unit:,.2f}"))


def _draw_curve(ax: Axes, now: Trade, curve: list[Trade]) -> None:
    unit, name = unit_of(curve[0].peak_bytes)
    work, peaks = [each.work for each in curve], [each.peak_bytes / unit for each in curve]
    ax.plot(work, peaks, color=BLUE, linewidth=1.4, marker="o", markersize=3)
    ax.plot(now.work, now.peak_bytes / unit, color=BLUE, marker="o", markersize=10, fillstyle="none", linestyle="none")
    ends = ((curve[0], labels.TRADE_NONE, "left"), (curve[-1], labels.TRADE_ALL.format(now.layers), "right"))
    for each, text, side in ends:
        ax.annotate(
            text,
            (each.work, each.peak_bytes / unit),
            xytext=(0, 9),
            textcoords="offset points",
            ha=side,
            fontsize=_SMALL,
        )
    ax.set_xlim(0.98, max(work) + 0.02)
    ax.set_ylim(0, 1.2 * max(peaks))
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.set(xlabel=labels.TRADE_FLOPS, ylabel=labels.TRADE_PEAK_AXIS.format(name))
