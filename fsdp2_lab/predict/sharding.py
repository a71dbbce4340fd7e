"""How FSDP2 cuts a group of parameters over ranks, and the bytes its collectives take while they run."""

from dataclasses import dataclass
from math import prod

from .ledger import Ledger, Storage
from .shapes import Parameters, Shape


@dataclass(frozen=True)
class Job:
    """What is trained how: the settings of a script that decide memory, with dtypes as bytes per element."""

    ranks: int
    batch: int
    seq: int
    param_bytes: int
    compute_bytes: int
    checkpointing: bool
    reshard: bool
    optimizer: str
    foreach: bool
    device: str
    fused: bool = False
    granularity: str = "block"

    @property
    def casts(self) -> bool:
        """Whether gathering casts parameters to another dtype."""
        return self.param_bytes != self.compute_bytes


REDUCE_BYTES = 4  # gradients are summed in float32


class Group:
    """One `fully_shard` group: every parameter cut along its first dimension, the last pieces padded to the first's.

    `shard_numels` has rank 0's elements of each parameter, `padded_numel` the group's over all ranks,
    `uneven_numel` those of its parameters that do not divide, and `largest_numel` those of its largest.
    `symbol` stands for `padded_numel` in formulas.
    """

    def __init__(self, name: str, symbol: str, parameters: Parameters, ranks: int):
        self.name, self.symbol = name, symbol
        self.shard_numels = [-(-shape[0] // ranks) * prod(shape[1:]) for shape in parameters.values()]
        self.shard_numel = sum(self.shard_numels)
        self.padded_numel = self.shard_numel * ranks
        self.largest_numel = ranks * max(self.shard_numels)
        pairs = zip(self.shard_numels, parameters.values(), strict=True)
        self.uneven_numel = ranks * sum(numel for numel, shape in pairs if shape[0] % ranks)


def groups(shape: Shape, ranks: int) -> tuple[Group, Group]:
    """The groups of a model sharded block by block, then the rest: a block's, and the root's."""
    return Group("a block", "Pb", shape.block, ranks), Group("the root", "Pr", shape.root, ranks)


def whole(shape: Shape, ranks: int) -> Group:
    """The one group of a model that was sharded as a whole."""
    blocks = {f"{index}.{name}": size for index in range(shape.layers) for name, size in shape.block.items()}
    return Group("the model", "P", shape.root | blocks, ranks)


class InRoot:
    """A block that is no group of its own: its parameters come and go with the root's."""

    def all_gather(self) -> None:
        pass

    def reshard(self) -> None:
        pass


class Sharded:
    """A group during a step: sharded, gathered, or on its way."""

    def __init__(self, ledger: Ledger, job: Job, group: Group):
        self._ledger, self._job, self._group = ledger, job, group
        self._buffer: Storage | None = None
        self._unsharded: Storage | None = None
        self._is_asked_for = False

    def all_gather(self) -> None:
        """Ask for the whole parameters; nothing happens where they are there or on their way."""
        if self._unsharded or self._is_asked_for:
            return
        self._is_asked_for = True
        if self._job.ranks == 1:
            return
        ledger, width = self._ledger, self._job.compute_bytes
        ledger.doing = f"all-gather of {self._group.name}"
        cast = None
        if self._job.casts:
            cast = self._alloc("all_gather", "shard in compute dtype", f"{width}P/N", self._group.shard_numel * width)
        self._buffer = self._alloc("all_gather", "output", f"{width}P", self._group.padded_numel * width)
        if self._job.device == "cpu":  # gloo gathers into a buffer of its own
            own = self._alloc("all_gather", "gloo's copy", f"{width}P", self._group.padded_numel * width)
            ledger.release(own)
        ledger.release(cast)

    def copy_out(self) -> Storage | None:
        """Turn what was gathered into parameters; returns the buffer, for its owner to release."""
        if not self._is_asked_for:
            return None
        self._is_asked_for = False
        self._ledger.doing = f"copy-out of {self._group.name}"
        width = self._job.compute_bytes
        self._unsharded = self._alloc("unsharded_parameters", "", f"{width}P", self._group.padded_numel * width)
        buffer, self._buffer = self._buffer, None
        return buffer

    def reshard(self) -> None:
        self._ledger.release(self._unsharded)
        self._unsharded = None

    def reduce_scatter(self, gradients: list[Storage]) -> Storage:
        """Reduce the group's gradients to shards, which stay; returns the input buffer, which FSDP keeps for a while.

        The last parameter's gradient lives to the end: a loop variable of FSDP's still names it.
        """
        ledger, group, job = self._ledger, self._group, self._job
        ledger.doing = f"reduce-scatter of {group.name}"
        source = self._alloc("reduce_scatter", "input", f"{REDUCE_BYTES}P", group.padded_numel * REDUCE_BYTES)
        if (
            job.device == "cpu" and job.ranks > 1
        ):  # a CPU pads before it copies in, all at once, and casts one at a time
            width = job.compute_bytes
            scratch = [
                self._alloc("reduce_scatter", "padded gradients", f"{width}P uneven", group.uneven_numel * width)
            ]
            if width != REDUCE_BYTES:
                size_bytes = group.largest_numel * width
                scratch.append(self._alloc("reduce_scatter", "one gradient cast", f"{width}P largest", size_bytes))
            for copy in scratch:
                ledger.release(copy)
        *others, last = gradients
        for gradient in others if job.ranks > 1 else gradients:
            ledger.release(gradient)
        shard = self._alloc("sharded_gradients", "", f"{REDUCE_BYTES}P/N", group.shard_numel * REDUCE_BYTES)
        if job.device == "cpu" and job.ranks > 1:  # gloo sums into a copy
            ledger.release(self._alloc("reduce_scatter", "gloo's copy", f"{REDUCE_BYTES}P", source.size_bytes))
        if job.param_bytes != REDUCE_BYTES:
            self._alloc("sharded_gradients", "", f"{job.param_bytes}P/N", group.shard_numel * job.param_bytes)
            ledger.release(shard)
        if job.ranks > 1:
            ledger.release(last)
        return source

    def _alloc(self, term: str, part: str, formula: str, size_bytes: int) -> Storage:
        name = self._group.name
        part = f"{part} of {name}" if part else name
        return self._ledger.alloc(term, part, formula.replace("P", self._group.symbol), size_bytes)
