"""What fits: a job in a GPU's memory, the fewest GPUs for it, the largest batch, each from the closed form."""

import math
import os
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from pathlib import Path

from ..contract.errors import UsageError
from ..contract.units import GIB, format_bytes, format_ranks
from .account import Account, account

# Supposed, not measured: CUDA's context, NCCL's buffers and what the allocator loses to fragmentation.
RESERVE_GIB = 2.0
# Powers of two: nodes have 8 GPUs, and the widths of published models divide by them.
RANKS = tuple(2**power for power in range(11))
MOST_BATCH = 1024  # sequences per rank
_SETTINGS = tuple(name for name in signature(account).parameters if name not in ("model", "ranks"))


@dataclass(frozen=True)
class Budget:
    """A GPU's memory in GiB, less a reserve for what a prediction of allocated bytes leaves out.

    Raises `UsageError` where nothing is left.
    """

    gib_per_gpu: float
    reserve_gib: float = RESERVE_GIB

    def __post_init__(self):
        for name, least in (("gib_per_gpu", "above 0"), ("reserve_gib", "from 0")):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not number or value < 0 or (value == 0 and least == "above 0"):
                raise UsageError(f"{name}={value!r:.40}: expected a number of GiB {least}.")
        if self.reserve_gib >= self.gib_per_gpu:
            raise UsageError(
                f"gib_per_gpu={self.gib_per_gpu:g}: the reserve of {self.reserve_gib:g} GiB leaves nothing of it."
            )

    @property
    def usable_bytes(self) -> int:
        return int((self.gib_per_gpu - self.reserve_gib) * GIB)

    def holds(self, predicted: Account) -> bool:
        """Whether a rank's peak fits; a later step's is never below the first step's."""
        return predicted.peak_bytes <= self.usable_bytes


@dataclass(frozen=True)
class Answer:
    """A value, the account that it rests on, and both in a sentence.

    `value` is `None` where there is none; the account is then of the job that comes nearest, and `blame` names its
    largest term.
    """

    value: bool | int | None
    account: Account
    sentence: str
    blame: str | None = None

    def __repr__(self) -> str:
        return self.sentence


def fit(model: str, ranks: int, gib_per_gpu: float, reserve_gib: float = RESERVE_GIB, **settings) -> Answer:
    """Whether one rank's peak fits a GPU: `value` is `True` or `False`.

    `settings` are those of `account`; kernels are CUDA's unless `device` says otherwise. Raises `UsageError`.
    """
    budget = Budget(gib_per_gpu, reserve_gib)
    predicted = _predict(model, ranks, settings)
    size, usable = format_bytes(predicted.peak_bytes), format_bytes(budget.usable_bytes)
    if budget.holds(predicted):
        spare = format_bytes(budget.usable_bytes - predicted.peak_bytes)
        return Answer(True, predicted, f"It fits: {size} at the peak, and {usable} are usable; {spare} stay free.")
    blame, about = _blame(predicted, settings)
    sentence = f"It does not fit: {size} at the peak, and {usable} are usable. The largest part is {about}."
    return Answer(False, predicted, sentence, blame)


def smallest_ranks(model: str, gib_per_gpu: float, reserve_gib: float = RESERVE_GIB, **settings) -> Answer:
    """The fewest ranks, of the powers of two in `RANKS`, at which the job fits; `batch` is each rank's.

    `settings` as in `fit`. Raises `UsageError`.
    """
    budget = Budget(gib_per_gpu, reserve_gib)
    predictions = peaks_by_ranks(model, **settings)
    found = next((each for each in predictions if budget.holds(each)), None)
    if found:
        size = format_bytes(found.peak_bytes)
        return Answer(found.ranks, found, f"The smallest N, of powers of two, is {found.ranks:,}, with {size} on each.")
    nearest = min(predictions, key=lambda predicted: predicted.peak_bytes)
    blame, about = _blame(nearest, settings)
    sentence = (
        f"No N up to {RANKS[-1]:,} is enough: with {nearest.ranks:,} each still peaks at "
        f"{format_bytes(nearest.peak_bytes)}. The largest part is {about}."
    )
    return Answer(None, nearest, sentence, blame)


def largest_batch(
    model: str, ranks: int, gib_per_gpu: float, reserve_gib: float = RESERVE_GIB, *, batch: int = 1, **settings
) -> Answer:
    """The most sequences per rank that fit, up to `MOST_BATCH`; the `batch` given is not looked at.

    `settings` as in `fit`. Raises `UsageError`.
    """
    budget = Budget(gib_per_gpu, reserve_gib)

    def predict(batch: int) -> Account:
        return _predict(model, ranks, settings | {"batch": batch})

    if not budget.holds(one := predict(1)):
        blame, about = _blame(one, settings | {"batch": 1})
        sentence = (
            f"Not one sequence a rank fits on {format_ranks(ranks)}: its peak is {format_bytes(one.peak_bytes)}. "
            f"The largest part is {about}."
        )
        return Answer(None, one, sentence, blame)
    fits, too_many = 1, 2  # no term shrinks as the batch grows, so what fits lies below what does not
    while too_many <= MOST_BATCH and budget.holds(predict(too_many)):
        fits, too_many = too_many, 2 * too_many
    while too_many - fits > 1 and fits < MOST_BATCH:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if budget.holds(predict(middle)) else (fits, middle)
    size, more = format_bytes(predict(fits).peak_bytes), " or more" if fits == MOST_BATCH else ""
    each = f"{fits:,}{more} sequence{'s' * (fits > 1)} a rank"
    sentence = f"The largest batch is {each}, {fits * ranks:,}{more} on all of them, with {size} on each."
    return Answer(fits, predict(fits), sentence)


def peaks_by_ranks(model: str, **settings) -> list[Account]:
    """The job's account at every N of `RANKS`. Raises `UsageError`."""
    return [_predict(model, ranks, settings) for ranks in RANKS]


def _predict(model: str, ranks: int, settings: dict) -> Account:
    if not isinstance(model, str):
        raise UsageError(f"model={model!r:.40}: expected a known model's name, or a folder with a config.json.")
    if unknown := [name for name in settings if name not in _SETTINGS]:
        raise UsageError(f"{unknown[0]!r:.40} decides no memory here; settings are {', '.join(_SETTINGS)}.")
    for name, value in (settings | {"ranks": ranks}).items():
        if value is not None and not isinstance(value, bool | int | str):
            raise UsageError(f"{name}={value!r:.40}: expected a whole number, a truth value or a name.")
    return _account(model, _stamp(model), ranks, **({"device": "cuda"} | settings))


@lru_cache(maxsize=2048, typed=True)  # a slider comes back to the same jobs; `typed`, since `True` is no batch of 1
def _account(model: str, _stamp, ranks: int, **settings) -> Account:
    return account(model, ranks, **settings)


def _stamp(model: str) -> tuple | None:
    """What tells one state of a folder's config from another."""
    try:
        status = os.stat(Path(model).expanduser() / "config.json")
    except (OSError, RuntimeError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _blame(predicted: Account, settings: dict) -> tuple[str, str]:
    """The largest term of a peak, and a few words on what it is and what would cut it."""
    term = max(predicted.terms, key=predicted.terms.get)
    cuts = "a smaller batch" if settings.get("batch", 1) > 1 else "a shorter sequence"
    about = {
        "sharded_parameters": "sharded parameters, {}: more ranks divide them",
        "sharded_gradients": "sharded gradients, {}: more ranks divide them",
        "optimizer": "optimizer states, {}: more ranks divide them",
        "unsharded_parameters": "gathered parameters, {}: no number of ranks divides a block's and the root's",
        "all_gather": "all-gather buffers, {}: a whole block's on any number of ranks",
        "reduce_scatter": "reduce-scatter buffers, {}: a whole block's on any number of ranks",
        "activations": f"activations, {{}}: {cuts} cuts them",
        "logits": f"logits and their gradients, {{}}: {cuts} cuts them",
        "temporaries": "gradients of whole weights and activations, {}: a whole block's on any number of ranks",
    }
    if not settings.get("reshard", True) and predicted.ranks > 1:
        about["unsharded_parameters"] = "gathered parameters, {}: reshard frees them after each block"
    if not settings.get("checkpointing", True):
        about["activations"] = "activations, {}: checkpointing would compute most of them again"
    if predicted.peak_at.startswith("the optimizer"):
        about["temporaries"] = "AdamW's temporaries, {}: more ranks divide them"
    return term, about.get(term, "other bytes, {}").format(format_bytes(predicted.terms[term]))
