"""Loading a safetensors folder into a sharded model: each rank reads its slices, and nobody holds the whole."""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException

from ..contract import stand_in
from ..contract.errors import UsageError, first_line
from .agreement import on_rank_0
from .matching import Match, match, wanted
from .materializing import materialize
from .slice_reader import SliceReader
from .stored_tensors import read_headers


@dataclass(frozen=True)
class Loaded:
    """What a load did: the bytes that this rank read, and with `strict=False` the names that had no counterpart."""

    bytes_read: int
    missing: list[str]
    extra: list[str]


def load_slices(
    model: nn.Module, folder: str | Path, device: torch.device, *, strict: bool = True, group=None
) -> Loaded:
    """Fill a model's parameters and saved buffers from a safetensors folder; every rank must call it.

    `model` is sharded by `fully_shard` on a mesh of one or two dimensions, or not at all, and may be on `meta`: what is
    there gets memory on `device`, except buffers that no checkpoint holds. Each rank reads the rows of its own shards,
    as they are stored, and converts them to the parameter's dtype while it copies them. Beside its shards it holds one
    slice at a time. Tied weights stay tied, whether they are stored once or under each name.

    Raises `UsageError`, on every rank, for a folder without safetensors, a damaged or missing file, a tensor of another
    shape, and, if `strict`, for the first tensor that is missing or left over; the model is then as it was, unless a
    file was damaged. With `strict=False` a missing tensor keeps its values, or stays on `meta`.
    """
    if stand_in.playing:
        materialize(model, device)
        return Loaded(0, [], [])
    try:
        folder = Path(folder).expanduser().absolute()
    except RuntimeError:  # ~nobody
        raise UsageError(f"{folder} names no user's home; name a folder with model*.safetensors in it.") from None
    matched = on_rank_0(lambda: _match(model, folder, strict), group)
    materialize(model, device, [tensor for name, tensor in wanted(model).items() if name in matched.missing])
    tensors = {name: tensor for name, tensor in wanted(model).items() if name in matched.found}
    reader = SliceReader(folder, matched)
    try:
        dcp.load(tensors, storage_reader=reader, process_group=group)
    except CheckpointException as error:
        rank, (cause, _) = min(error.failures.items())
        if isinstance(cause, UsageError):
            raise UsageError(str(cause)) from None
        raise UsageError(f"{folder} cannot be read (rank {rank}: {first_line(cause):.150}); copy it again.") from None
    return Loaded(reader.bytes_read, matched.missing, matched.extra)


def _match(model: nn.Module, folder: Path, strict: bool) -> Match:
    matched = match(model, read_headers(folder), folder)
    if strict:
        for names, problem in (
            (matched.missing, "is missing from the checkpoint"),
            (matched.extra, "is in the checkpoint but not in the model"),
        ):
            if names:
                more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
                raise UsageError(f"{names[0]}{more} {problem} {folder}; give the model the config it was saved with.")
    return matched
