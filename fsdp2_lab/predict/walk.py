"""From the segments of a step to its peak: every block in its turn, then the optimizer, for step 0 and later steps.

Three blocks stand for any number of them: the first, the last, and one between, all of whose like do the same. Where
only the first blocks are checkpointed, these three and three of the others do.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from .ledger import Label, Segment
from .shapes import Shape
from .sharding import Group, Job, groups
from .step import Step, lengths

BLOCKS = 3  # of a kind, at the most, that are walked through


@dataclass(frozen=True)
class Peak:
    """The highest moment of a step: where it is, and what is alive there, in bytes by label."""

    at: str
    during: str
    alive: dict[Label, int]

    @property
    def size_bytes(self) -> int:
        return sum(self.alive.values())


def find_peak(shape: Shape, job: Job, is_first: bool, checkpointed: int | None = None) -> Peak:
    """The peak of step 0 (`is_first`) or of any later step.

    `checkpointed` blocks, the first ones, are computed again in backward: all or none, by the job, unless given.
    """
    alive = _state(shape, job, is_first)
    total = sum(alive.values())
    best, best_bytes = None, -1
    for segment in segments(shape, job, is_first, checkpointed):
        if total + segment.peak_delta > best_bytes:
            best_bytes = total + segment.peak_delta
            best = (segment, dict(alive))
        for label, delta in segment.to_end.items():
            alive[label] += delta
            total += delta
    segment, before = best
    at_peak = Counter(before)
    at_peak.update(segment.to_peak)
    return Peak(segment.name, segment.peak_at, {label: size for label, size in at_peak.items() if size})


def segments(shape: Shape, job: Job, is_first: bool, checkpointed: int | None = None) -> Iterator[Segment]:
    """All segments of a step in their order, those of every block by its own number."""
    if checkpointed is None:
        checkpointed = shape.layers if job.checkpointing else 0
    again, kept = range(checkpointed), range(checkpointed, shape.layers)
    stands_for = [*_few(again), *_few(kept)]
    for segment in Step(shape, job, is_first, [group[0] in again for group in stands_for]).walk():
        prefix, _, index = segment.name.rpartition(" block ")
        if not prefix:
            yield segment
            continue
        blocks = stands_for[int(index)]
        for block in blocks if prefix.startswith("forward") else reversed(blocks):
            yield segment.renamed(f"{prefix} block {block}")
    yield _optimizer(shape, job, is_first)


def _few(blocks: range) -> list[range]:
    """Blocks in groups that do the same: the first, the last, and all between."""
    if len(blocks) <= BLOCKS:
        return [blocks[place : place + 1] for place in range(len(blocks))]
    return [blocks[:1], blocks[1:-1], blocks[-1:]]


def _state(shape: Shape, job: Job, is_first: bool) -> Counter:
    """What is alive before a step: the sharded state, the tokens, and the logits of the step before."""
    alive = Counter()
    for group, times in _groups(shape, job):
        label = _state_label("sharded_parameters", group, job.param_bytes)
        alive[label] = times * label.unit_bytes
        if not is_first and job.optimizer == "adamw":
            label = _state_label("optimizer", group, 2 * job.param_bytes)
            alive[label] = times * label.unit_bytes
    sizes = lengths(shape, job)
    tokens = sizes.bytes("bs", 8)
    alive[Label("other", "tokens", "8bs", tokens)] = 2 * tokens
    if not is_first:
        logits = sizes.bytes("bsv", job.compute_bytes)
        alive[Label("logits", "logits", f"{job.compute_bytes}bsv", logits)] = logits
    return alive


def _groups(shape: Shape, job: Job) -> list[tuple[Group, int]]:
    block, root = groups(shape, job.ranks)
    return [(block, shape.layers), (root, 1)]


def _state_label(term: str, group: Group, width: int) -> Label:
    return Label(term, group.name, f"{width}{group.symbol}/N", width * group.shard_numel)


def _optimizer(shape: Shape, job: Job, is_first: bool) -> Segment:
    segment = Segment("the optimizer's step")
    if job.optimizer != "adamw":
        return segment
    (block, layers), (root, _) = pairs = _groups(shape, job)
    if is_first:
        for group, times in pairs:
            label = _state_label("optimizer", group, 2 * job.param_bytes)
            segment.to_peak[label] = times * label.unit_bytes
    if job.fused:  # one kernel, in place
        return segment
    if job.foreach:
        for group, times in pairs:
            label = _state_label("temporaries", group, job.param_bytes)
            segment.to_peak[label] = times * label.unit_bytes
    else:  # two of a parameter's size, while the last one's denominator is still there
        numels = [root.shard_numels[0], *block.shard_numels * min(layers, 2), *root.shard_numels[1:]]
        size_bytes = job.param_bytes * max(last + 2 * now for last, now in pairwise([0, *numels]))
        segment.to_peak[Label("temporaries", "of AdamW", "of the largest shards", size_bytes)] = size_bytes
    segment.peak_at = "square roots of the second moments"
    return segment
