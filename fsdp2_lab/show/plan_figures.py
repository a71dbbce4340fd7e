"""The planner's figure: a rank's bytes at its peak, term by term, and how the peak falls with more ranks."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from ..contract.terms import in_order
from ..contract.units import GIB, format_ranks
from ..predict.account import Account
from ..predict.plan import Budget
from . import labels
from .canvas import canvas, title
from .memory_figures import unit_of
from .palette import BLUE, TERM_COLOURS, VERMILION

_SMALL = 9


def plan(predicted: Account, by_ranks: list[Account], budget: Budget, dry_run_bytes: int | None = None) -> Figure:
    """Terms of one job on the left; on the right its peak at every N, with the line below which it fits."""
    figure, (left, right) = canvas(2, height=3.3)
    _draw_terms(left, predicted)
    title(left, labels.PLAN_TERMS_TITLE.format(format_ranks(predicted.ranks)), predicted.label)
    _draw_curve(right, predicted, by_ranks, budget, dry_run_bytes)
    title(right, labels.PLAN_CURVE_TITLE, predicted.label)
    return figure


def _draw_terms(ax: Axes, predicted: Account) -> None:
    terms = {term: size for term, size in in_order(predicted.terms).items() if size >= 0.001 * predicted.peak_bytes}
    unit, name = unit_of(predicted.peak_bytes)
    for place, (term, size) in enumerate(terms.items()):
        ax.barh(place, size / unit, color=TERM_COLOURS[term], height=0.7)
        ax.text(size / unit, place, f" {size / unit:,.2f}", va="center", fontsize=_SMALL)
    ax.set_yticks(range(len(terms)), [labels.TERM_NAMES[term] for term in terms], fontsize=_SMALL)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.35 * max(terms.values()) / unit)  # room for the number beside the longest bar
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.xaxis.set_major_formatter(_numbers)
    ax.set_xlabel(labels.PLAN_SUM.format(name, f"{predicted.peak_bytes / unit:,.2f}"))


def _draw_curve(ax: Axes, predicted: Account, by_ranks: list[Account], budget: Budget, dry_run_bytes) -> None:
    ranks, peaks = [each.ranks for each in by_ranks], [each.peak_bytes / GIB for each in by_ranks]
    usable, here = budget.usable_bytes / GIB, predicted.peak_bytes / GIB
    ax.plot(ranks, peaks, color=BLUE, linewidth=1.4, marker="o", markersize=3)
    job = dict(linestyle="none", markersize=9, fillstyle="none")
    ax.plot(predicted.ranks, here, color=BLUE, marker="o", label=labels.PLAN_THIS_JOB, **job)
    if dry_run_bytes:
        ax.plot(predicted.ranks, dry_run_bytes / GIB, color="black", marker="x", label=labels.DRY_RUN, **job)
    ax.axhline(usable, color=VERMILION, linewidth=1.2, linestyle="--")
    right_half = peaks[len(peaks) // 2 + 1 :]  # where the words stand, unless the curve goes through them there
    at_right = max(right_half) < usable or min(right_half) > 1.5 * usable
    place, side = (ranks[-1], "right") if at_right else (ranks[0], "left")
    text = labels.PLAN_USABLE.format(f"{budget.gib_per_gpu:g} − {budget.reserve_gib:g}")
    ax.text(place, usable * 1.06, text, color=VERMILION, ha=side, va="bottom", fontsize=_SMALL)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_ylim(min(*peaks, usable) / 1.7, max(*peaks, usable) * 2)
    ax.set_xticks(ranks[::2], [f"{count:,}" for count in ranks[::2]])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(_numbers)
    ax.legend(frameon=False, fontsize=_SMALL, loc="best", handletextpad=0.2)
    ax.set(xlabel=labels.PLAN_RANKS, ylabel=labels.GIB)


def _numbers(value: float, _place) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:.2g}"
