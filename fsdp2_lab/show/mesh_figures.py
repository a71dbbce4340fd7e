"""Figures of ranks: how a mesh lays them out, and what each collective moves between them."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..contract.errors import UsageError
from ..lab.runs import Run
from . import labels
from .canvas import canvas, title
from .palette import BLUE, PALE, rank_colour

COLLECTIVES = ("broadcast", "all-gather", "reduce-scatter", "all-reduce", "all-to-all")


def mesh_layout(run: Run) -> Figure:
    """A two-dimensional mesh as a grid, a tile a rank, from the `place` that each rank noted: row, then column.

    Tiles of one colour hold the same shard.
    """
    places = run.noted("place")
    if any(len(place) != 2 for place in places.values()):
        raise UsageError(
            f"{run.id} noted places of other than two numbers; a mesh of two dimensions gives row, column."
        )
    rows, columns = (1 + max(place[dimension] for place in places.values()) for dimension in (0, 1))
    figure, (ax,) = canvas(height=1.2 + 0.55 * rows)
    for rank, (row, column) in places.items():
        _tile(ax, row, column, labels.RANK.format(rank), rank_colour(column))
    ax.set_xticks([column + 0.46 for column in range(columns)], [labels.MESH_SHARD.format(n) for n in range(columns)])
    ax.set_yticks(range(rows), [labels.MESH_REPLICA.format(n) for n in range(rows)])
    ax.set(xlim=(-0.1, columns), ylim=(rows - 0.4, -0.6))
    _quiet(ax)
    title(ax, labels.MESH_TITLE.format(rows, columns), labels.MESH_NOTED.format(run.how))
    return figure


def collectives(run: Run, names: Sequence[str] = COLLECTIVES) -> Figure:
    """Lists before and after each collective, a row of tiles a rank, from the `before` and `after` that it noted.

    A tile has the colour of the rank that brought its number; a number that no rank brought, a sum, is grey.
    """
    figure, axes = canvas(2, height=(0.75 + 0.26 * run.ranks) * len(names), rows=len(names))
    noted = {name: run.noted(name) for name in names}
    lists = [row[when] for rows in noted.values() for row in rows.values() for when in ("before", "after")]
    width = max(map(len, lists))  # the same scale in all panels
    for place, (name, rows) in enumerate(noted.items()):
        brought = {row["before"][0] for row in rows.values()}
        for ax, when in zip(axes[2 * place : 2 * place + 2], ("before", "after"), strict=True):
            for rank, row in rows.items():
                for column, value in enumerate(row[when]):
                    _tile(ax, rank, column, f"{value:g}", rank_colour(int(value)) if value in brought else PALE)
            ax.set_yticks(range(run.ranks), [labels.RANK.format(rank) for rank in range(run.ranks)])
            ax.set(xlim=(-0.1, width), ylim=(run.ranks - 0.4, -0.6), xticks=[])
            _quiet(ax)
            ax.set_title(labels.COLLECTIVE[when].format(name), loc="left", fontsize=10)
    figure.suptitle(labels.COLLECTIVES_TITLE.format(run.how), x=0.01, ha="left", fontsize=10)
    return figure


def _tile(ax: Axes, row: int, column: int, text: str, colour: str) -> None:
    ax.barh(row, 0.92, left=column, height=0.8, color=colour)
    ink = "white" if colour == BLUE else "black"
    ax.text(column + 0.46, row, text, ha="center", va="center", fontsize=9, color=ink)


def _quiet(ax: Axes) -> None:
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(length=0)
