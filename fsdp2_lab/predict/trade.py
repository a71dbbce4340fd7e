"""Checkpointing's trade: bytes that wait for backward, and the peak, against what is computed again."""

from collections import Counter
from dataclasses import dataclass
from inspect import signature
from math import prod

from ..contract.errors import UsageError
from .account import account
from .jobs import find_job
from .shapes import Shape
from .sharding import Job
from .walk import find_peak, segments

_DEFAULTS = {
    name: parameter.default
    for name, parameter in signature(account).parameters.items()
    if name not in ("model", "ranks", "checkpointing")
}


@dataclass(frozen=True)
class Trade:
    """A job of which the first `checkpointed` of `layers` blocks are computed again in backward.

    `held` are the bytes that one rank's forward leaves for its backward, by part; `work` is a step's FLOPs as a
    multiple of those without checkpointing, in products with weights (attention's own products left out).
    """

    layers: int
    checkpointed: int
    held: dict[str, int]
    peak_bytes: int
    peak_at: str
    work: float
    device: str

    @property
    def held_bytes(self) -> int:
        return sum(self.held.values())

    @property
    def label(self) -> str:
        """How its numbers were got, and whose kernels were supposed: `predicted (CUDA)`."""
        return f"predicted ({self.device.upper()})"


def trade(model: str, ranks: int, checkpointed: int | None = None, **settings) -> Trade:
    """Predict one rank of a job whose first blocks, all of them unless given, are checkpointed.

    `settings` are those of `account`. Raises `UsageError` as it does, and for more blocks than there are.
    """
    if unknown := [name for name in settings if name not in _DEFAULTS]:
        raise UsageError(f"{unknown[0]!r:.40} is no setting of this prediction; they are {', '.join(_DEFAULTS)}.")
    shape, job = find_job(model, ranks, checkpointing=True, **_DEFAULTS | settings)
    count = shape.layers if checkpointed is None else checkpointed
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= shape.layers:
        raise UsageError(f"checkpointed={count!r:.40}: expected a whole number from 0 to {shape.layers}, its blocks.")
    peak = find_peak(shape, job, is_first=False, checkpointed=count)
    return Trade(
        layers=shape.layers,
        checkpointed=count,
        held=_held(shape, job, count),
        peak_bytes=peak.size_bytes,
        peak_at=peak.at,
        work=_work(shape, count),
        device=job.device,
    )


def _held(shape: Shape, job: Job, checkpointed: int) -> dict[str, int]:
    held = Counter()
    for segment in segments(shape, job, is_first=True, checkpointed=checkpointed):
        for label, delta in segment.to_end.items():
            if label.term in ("activations", "logits"):
                held[label.part] += delta
        if segment.name == "forward of lm_head":
            break
    return {part: size for part, size in held.items() if size}


def _work(shape: Shape, checkpointed: int) -> float:
    """Backward takes two products for each of forward's; one computed again ends at the last tensor it has to save."""
    matrices = [prod(sizes) for sizes in shape.block.values() if len(sizes) == 2]
    block, head = sum(matrices), shape.vocab * shape.hidden
    saves_after_the_last = shape.dropout[2] > 0
    again = block if saves_after_the_last else block - matrices[-1]
    return 1 + checkpointed * again / (3 * (shape.layers * block + head))
