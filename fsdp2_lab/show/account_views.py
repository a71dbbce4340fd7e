"""The closed form on the page: a job over the number of ranks, changes to it, and the article's formula beside it."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..contract.terms import TERMS
from ..contract.units import format_bytes
from ..predict.account import Account, account
from . import labels
from .canvas import canvas, title
from .memory_figures import unit_of
from .palette import TERM_COLOURS


def over_ranks(model: str, ranks: Sequence[int], **job) -> Figure:
    """One rank's peak for several numbers of ranks, by what its bytes are for; `job` are settings of `account`.

    Raises `UsageError` as `account` does.
    """
    found = [account(model, n, **job) for n in ranks]
    figure, axes = canvas(2, height=3.6)
    for ax, shown in zip(
        axes, (found[: len(found) // 2 + 1], found[len(found) // 2 :]), strict=True
    ):  # small bars, larger
        _stack(ax, shown)
    handles = {handle.get_label(): handle for ax in axes for handle in ax.containers}
    figure.legend(handles.values(), handles, frameon=False, fontsize=9, ncols=4, loc="outside lower left")
    title(axes[0], labels.OVER_RANKS_TITLE.format(model), found[0].label)
    title(axes[1], labels.ENLARGED_TITLE.format(ranks[len(ranks) // 2]), found[0].label)
    return figure


def _stack(ax: Axes, found: Sequence[Account]) -> None:
    unit, name = unit_of(max(each.peak_bytes for each in found))
    bottoms = [0.0] * len(found)
    for term in TERMS:
        heights = [each.terms[term] / unit for each in found]
        if any(heights):
            ax.bar(range(len(found)), heights, 0.7, bottoms, color=TERM_COLOURS[term], label=labels.TERM_NAMES[term])
            bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    for place, top in enumerate(bottoms):
        ax.text(place, top, f"{top:,.1f}", ha="center", va="bottom", fontsize=9)
    ax.set_xticks(range(len(found)), [f"{each.ranks}" for each in found])
    ax.set(xlabel=labels.RANK_COUNT, ylabel=name, ylim=(0, 1.12 * max(bottoms)))


def changes(model: str, ranks: int, alternatives: Mapping[str, dict], **job) -> pd.DataFrame:
    """A job's peak as it is and after each change: label to the settings that differ from `job`."""
    rows = {}
    for label, settings in ({labels.AS_IT_IS: {}} | dict(alternatives)).items():
        found = account(model, **{"ranks": ranks, **job, **settings})
        largest = max(found.terms, key=found.terms.get)
        rows[label] = (
            format_bytes(found.peak_bytes),
            found.peak_at,
            f"{labels.TERM_NAMES[largest]}, {format_bytes(found.terms[largest])}",
            found.label,
        )
    return pd.DataFrame.from_dict(rows, orient="index", columns=labels.CHANGES_COLUMNS)


def article(account: Account) -> pd.DataFrame:
    """The article's three terms, and what the account has in their place: bytes to be read."""
    told = account.article
    rows = [
        ("16P/N", told["state_bytes"], told["state_bytes"]),
        ("2bshL", told["boundary_bytes"], told["boundary_bytes"]),
    ]
    rows += [("O", told["overhead_bytes"], sum(told["overhead_is"].values()))]
    rows += [
        (f"  O: {labels.TERM_NAMES.get(name, name)}", None, size) for name, size in told["overhead_is"].items() if size
    ]
    rows += [(labels.STEP_PEAK, told["peak_bytes"], account.peak_bytes)]
    table = pd.DataFrame(rows, columns=("", labels.ARTICLE_COLUMN, account.label)).set_index("")
    return table.map(lambda size: "" if pd.isna(size) else format_bytes(int(size)))
