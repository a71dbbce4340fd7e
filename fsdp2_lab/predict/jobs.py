"""From what a user asks for to a model's shape and a job's sizes in bytes, checked in one place."""

from ..contract.errors import UsageError
from ..contract.settings import Settings
from .devices import DEVICES, supposed
from .shapes import Shape, find_shape
from .sharding import Job

OPTIMIZERS = ("adamw", "sgd")
GRANULARITIES = ("block", "model")
_CHOICES = {"optimizer": OPTIMIZERS, "granularity": GRANULARITIES, "device": DEVICES}
_WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}  # bytes per element


def find_job(
    model: str,
    ranks: int,
    *,
    batch: int,
    seq: int,
    param_dtype: str,
    compute_dtype: str,
    checkpointing: bool,
    reshard: bool,
    optimizer: str,
    foreach: bool | None,
    fused: bool,
    granularity: str,
    device: str,
) -> tuple[Shape, Job]:
    """The model's shape and the job, with `auto` and `None` decided by the device.

    Raises `UsageError` for a value that cannot be, for an unknown model and for more tokens than it has positions.
    """
    _check(ranks, batch, seq, param_dtype, compute_dtype)
    _check_choices(optimizer=optimizer, granularity=granularity, device=device)
    if fused and (foreach or optimizer != "adamw"):
        other = "foreach" if foreach else optimizer
        raise UsageError(f"--fused true with {other}: fused is a way of adamw's that excludes foreach; leave one out.")
    shape = find_shape(model)
    if shape.positions and seq > shape.positions:
        raise UsageError(f"--seq {seq}: {model} has positions for {shape.positions} tokens at most.")
    device = supposed(device)
    if compute_dtype == "auto":
        compute_dtype = "bfloat16" if device == "cuda" else "float32"
    return shape, Job(
        ranks=ranks,
        batch=batch,
        seq=seq,
        param_bytes=_WIDTHS[param_dtype],
        compute_bytes=_WIDTHS[compute_dtype],
        checkpointing=checkpointing,
        reshard=reshard,
        optimizer=optimizer,
        foreach=device == "cuda" if foreach is None else foreach,
        device=device,
        fused=fused,
        granularity=granularity,
    )


def _check(ranks: int, batch: int, seq: int, param_dtype: str, compute_dtype: str) -> None:
    for name, value in (("ranks", ranks), ("batch", batch), ("seq", seq)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise UsageError(f"--{name} {value!r}: expected a whole number.")
    if ranks < 1:
        raise UsageError(f"--ranks {ranks}: expected a whole number from 1.")
    Settings(batch=batch, seq=seq, param_dtype=param_dtype, compute_dtype=compute_dtype).check_values()


def _check_choices(**values: str) -> None:
    for name, value in values.items():
        if value not in (allowed := _CHOICES[name]):
            raise UsageError(f"--{name} {value}: expected one of {', '.join(allowed)}.")
