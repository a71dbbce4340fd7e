"""Who holds which rows of which parameter: a bar for every parameter, a block in it for every rank."""

import re
from collections import Counter
from itertools import accumulate
from math import prod

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..contract.errors import UsageError
from ..lab.runs import Run
from . import labels
from .canvas import canvas, title
from .palette import BLUE, GREY, WINE, rank_colour

_DARK = (BLUE, WINE, GREY)  # what white is read on
_LONGEST = 34  # characters of a parameter's name
_INCHES_PER_CHARACTER = 0.072  # at the size of the words in a block
_MOST_IN_LEGEND = 8  # ranks; the colours begin anew after them


def shards(run: Run, only: str = "") -> Figure:
    """Who holds which rows of which parameter, from the local shapes that every rank noted as `shards`.

    A bar has the parameters of one kind in all layers that are cut alike; `only` keeps those whose name contains it.
    Parameters are cut along their first dimension over all ranks, as `fully_shard` does on a mesh of one dimension.
    What is dashed is the padding that makes all pieces equal. Raises `UsageError` where there is nothing to draw.
    """
    noted = run.noted("shards")
    kinds = _kinds(noted, only)
    if not kinds:
        raise UsageError(f"No parameter of {run.id} has {only!r} in its name; it has {', '.join(noted[0])[:200]}.")
    figure, (ax,) = canvas(height=1.3 + 0.27 * len(kinds))
    for place, (_, shapes) in enumerate(kinds):
        held = [shape[0] if shape else 1 for shape in shapes]
        draw_rows(ax, place, held, inches=4.2)
        whole = [sum(held), *shapes[0][1:]]
        ax.text(1.01, place, " × ".join(f"{size:,}" for size in whole), va="center", fontsize=8)
    shared = _shared_prefix([kind for kind, _ in kinds])
    names = [
        _short(kind.removeprefix(shared)) + (f" ×{count}" if count > 1 else "") for (kind, _), count in kinds.items()
    ]
    ax.set_yticks(range(len(kinds)), names, fontsize=8)
    ax.set(xlim=(0, 1.18), ylim=(len(kinds) - 0.5, -0.5), xticks=[])
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(length=0)
    handles = [
        Patch(color=rank_colour(rank), label=labels.HOLDS.format(rank, sum(map(prod, shapes.values()))))
        for rank, shapes in list(noted.items())[:_MOST_IN_LEGEND]
    ]
    figure.legend(handles=handles, frameon=False, fontsize=9, ncols=3, loc="outside lower left")
    title(ax, labels.SHARDS_TITLE, labels.FROM_SHAPES.format(run.how))
    return figure


def draw_rows(ax: Axes, place: float, held: list[int], inches: float) -> None:
    """One parameter as a bar of width 1: a block for every rank with the rows it holds, and the padding, dashed.

    `inches` is how wide the bar will be, which decides whether a block has room for its rows' numbers.
    """
    most = max(*held, 1)
    padded = most * len(held)
    for rank, (rows, end) in enumerate(zip(held, accumulate(held), strict=True)):
        if not rows:
            continue
        colour = rank_colour(rank)
        left, width = (end - rows) / padded, rows / padded
        ax.barh(place, width, left=left, height=0.78, color=colour, edgecolor="white", linewidth=0.8)
        word = f"{end - rows}–{end - 1}" if rows > 1 else f"{end - 1}"
        if len(word) * _INCHES_PER_CHARACTER < width * inches:
            ink = "white" if colour in _DARK else "black"
            ax.text(left + width / 2, place, word, ha="center", va="center", fontsize=8, color=ink)
    if missing := padded - sum(held):
        edge = dict(facecolor="none", edgecolor=GREY, linestyle="--", linewidth=1)
        ax.barh(place, missing / padded, left=1 - missing / padded, height=0.74, **edge)


def _kinds(noted: dict[int, dict[str, list[int]]], only: str) -> Counter:
    """Kind of parameter and its shapes on all ranks, to how many layers have it so; in the model's order."""
    found = Counter()
    for name in noted[0]:
        if only not in name:
            continue
        if lacking := [rank for rank, shapes in noted.items() if name not in shapes]:
            raise UsageError(f"Rank {lacking[0]} noted no shape of {name}; every rank notes all of its parameters.")
        kind = re.sub(r"(^|\.)\d+\.", r"\1*.", name, count=1)
        found[kind, tuple(tuple(shapes[name]) for shapes in noted.values())] += 1
    return found


def _shared_prefix(kinds: list[str]) -> str:
    """What the names of all parameters in layers begin with, such as `model.layers.*.`; nothing where they differ."""
    prefixes = {kind[: kind.index("*.") + 2] for kind in kinds if "*." in kind}
    return prefixes.pop() if len(prefixes) == 1 else ""


def _short(name: str) -> str:
    name = name.removeprefix("model.").removesuffix(".weight")
    return name if len(name) <= _LONGEST else f"…{name[1 - _LONGEST :]}"
