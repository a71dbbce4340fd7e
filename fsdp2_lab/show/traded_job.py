"""A job whose blocks are checkpointed in part: what was chosen, and what follows from it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from matplotlib.figure import Figure

from ..contract.errors import UsageError
from ..contract.units import format_bytes, format_ranks
from ..predict.trade import Trade, trade
from . import labels
from .trade_figures import trade_figure

_CHOSEN = ("model", "batch", "seq", "blocks")
_POINTS = 16  # of the curve, at the least, where there are more blocks


@dataclass
class TradedJob:
    """One job of launch/train.py on GPUs, the first `blocks` of whose blocks are checkpointed; `None` is all of them.

    `change` is what the controls call; `watchers` are called after it. Answers raise `UsageError` where the job
    cannot be; `lines` says it then.
    """

    model: str = "llama-2-7b"
    ranks: int = 8
    batch: int = 1
    seq: int = 4096
    blocks: int | None = None
    watchers: list[Callable[[], None]] = field(default_factory=list, init=False, repr=False)
    _found: dict[tuple, Trade] = field(default_factory=dict, init=False, repr=False)

    def change(self, name: str, value) -> None:
        """Choose another value of one setting. Of another model all blocks stay all, and no more than it has."""
        if name not in _CHOSEN:
            raise UsageError(f"{name!r:.40} is not chosen here: expected one of {', '.join(_CHOSEN)}.")
        setattr(self, name, value)
        if name == "model" and self.blocks is not None:
            self.blocks = min(self.blocks, self.layers)
        if self.blocks == self.layers:
            self.blocks = None
        for watcher in self.watchers:
            watcher()

    @property
    def layers(self) -> int:
        """How many blocks the model has."""
        return trade(self.model, 1, batch=1, seq=1).layers

    @property
    def found(self) -> Trade:
        """The job's bytes, peak and work."""
        return self.at(self.blocks)

    def at(self, blocks: int | None) -> Trade:
        """The same with another number of blocks checkpointed."""
        job = (self.model, self.ranks, blocks, self.batch, self.seq)
        if job not in self._found:
            settings = dict(batch=self.batch, seq=self.seq, device="cuda")
            self._found[job] = trade(self.model, self.ranks, blocks, **settings)
        return self._found[job]

    def curve(self) -> list[Trade]:
        """From no block to all of them."""
        step = max(1, self.layers // _POINTS)
        return [self.at(blocks) for blocks in range(0, self.layers, step)] + [self.at(None)]

    @property
    def fewest(self) -> int:
        """The fewest checkpointed blocks whose peak is that of all of them."""
        low, high = 0, self.layers  # no peak rises where one block more is checkpointed
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.at(middle).peak_bytes <= self.at(None).peak_bytes else (middle + 1, high)
        return high

    def lines(self) -> list[str]:
        """The answers in words, a sentence each, or the one sentence that says why there are none."""
        try:
            now, none, every = self.found, self.at(0), self.at(None)
            sizes = labels.PLAN_SIZES.format(format_ranks(self.ranks), f"{self.batch:,}", f"{self.seq:,}")
            held, peaks = [[format_bytes(size) for size in sizes] for sizes in _bytes(now, none, every)]
            return [
                labels.TRADE_HEADING.format(now.label, self.model, sizes, now.checkpointed, now.layers),
                labels.TRADE_HELD.format(*held),
                labels.TRADE_PEAK.format(now.peak_at, *peaks),
                labels.TRADE_WORK.format(now.work, every.work),
                labels.TRADE_FEWEST.format(fewest) if (fewest := self.fewest) < now.layers else labels.TRADE_NOT_FEWER,
            ]
        except UsageError as error:
            return [str(error)]

    @property
    def text(self) -> str:
        return "\n".join(self.lines())

    def figure(self) -> Figure | None:
        """What waits for backward, and the peak against the work; `None` where the job cannot be."""
        try:
            return trade_figure(self.found, self.curve(), self.ranks)
        except UsageError:
            return None


def _bytes(now: Trade, none: Trade, every: Trade) -> tuple[list[int], list[int]]:
    several = (now, none, every)
    return [each.held_bytes for each in several], [each.peak_bytes for each in several]
