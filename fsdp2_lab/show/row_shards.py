"""One tensor's rows over N ranks: who gets how many, and what padding the unequal pieces cost."""

from collections.abc import Callable
from dataclasses import dataclass, field

from matplotlib.figure import Figure

from ..contract.errors import UsageError
from ..contract.units import format_ranks
from . import labels
from .canvas import canvas, title
from .palette import rank_colour
from .shard_figures import draw_rows

_LIMITS = {"ranks": (1, 1024), "rows": (1, 1_000_000), "columns": (1, 1_000_000)}
_BYTES_EACH = 4  # float32, as the shards in this series
_MOST_NAMED = 8  # ranks whose rows are told one by one


def rows_by_rank(rows: int, ranks: int) -> list[int]:
    """How many rows each rank gets: rows / ranks, rounded up, until none are left, as `torch.chunk` cuts."""
    most = -(-rows // ranks)
    return [max(0, min(most, rows - rank * most)) for rank in range(ranks)]


@dataclass
class RowShards:
    """A float32 tensor of (rows, columns), cut along its rows over ranks; `watchers` are called after each change.

    Raises `UsageError` for a number that is out of range.
    """

    ranks: int = 4
    rows: int = 10
    columns: int = 256
    watchers: list[Callable[[], None]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self):
        for name in _LIMITS:
            _check(name, getattr(self, name))

    def change(self, name: str, value: int) -> None:
        """Choose another value of one number."""
        _check(name, value)
        setattr(self, name, value)
        for watcher in self.watchers:
            watcher()

    @property
    def held(self) -> list[int]:
        """Rows by rank."""
        return rows_by_rank(self.rows, self.ranks)

    @property
    def padding_rows(self) -> int:
        """How many rows of zeros make all pieces as large as rank 0's."""
        return self.ranks * self.held[0] - self.rows

    @property
    def padding_bytes(self) -> int:
        """Their bytes over all ranks, and in each gathered copy, in float32."""
        return _BYTES_EACH * self.columns * self.padding_rows

    @property
    def largest_share(self) -> float:
        """Rank 0's part of the rows; 1 / ranks where they divide."""
        return self.held[0] / self.rows

    @property
    def text(self) -> str:
        """What there is to say, a sentence a line."""
        held = self.held
        shown = ", ".join(f"{rows:,}" for rows in held[:_MOST_NAMED]) + (", …" if self.ranks > _MOST_NAMED else "")
        lines = [labels.SHARD_ROWS.format(self.rows, self.columns, format_ranks(self.ranks), shown)]
        if idle := held.count(0):
            lines.append(labels.SHARD_IDLE.format(format_ranks(idle)))
        lines.append(labels.SHARD_LARGEST.format(self.largest_share, 1 / self.ranks))
        lines.append(labels.SHARD_PADDING.format(self.padding_rows, self.columns, self.padding_bytes))
        return "\n".join(lines)

    def figure(self) -> Figure:
        """The tensor as a bar, a block for every rank; the marks above are where equal shares would end."""
        figure, (ax,) = canvas(height=1.5)
        draw_rows(ax, 0, self.held, inches=7.0)
        padded = self.ranks * self.held[0]
        for rank in range(self.ranks):
            x = (rank + 1) * self.rows / self.ranks / padded
            ax.plot([x, x], [0.42, 0.56], color=rank_colour(rank), linewidth=2)
        ax.set(xlim=(0, 1.005), ylim=(-0.45, 0.6), xticks=[], yticks=[])
        ax.spines[["left", "bottom"]].set_visible(False)
        title(ax, labels.SHARD_TITLE.format(self.rows, self.columns, format_ranks(self.ranks)), labels.SHARD_HOW)
        return figure


def _check(name: str, value) -> None:
    if name not in _LIMITS:
        raise UsageError(f"{name!r:.40} is not chosen here: expected one of {', '.join(_LIMITS)}.")
    least, most = _LIMITS[name]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UsageError(f"{name}={value!r:.40}: expected a whole number from {least} to {most:,}.")
