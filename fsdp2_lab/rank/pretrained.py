"""A sharded model as a Hugging Face folder, without the whole model on any rank."""

import copy
import secrets
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.fsdp import FSDPModule
from transformers import PreTrainedModel

from ..contract import stand_in
from ..contract.errors import UsageError, first_line
from ..contract.saved_state import UNFINISHED
from .agreement import on_rank_0
from .saving import untied

FILE_BYTES = 5_000_000_000  # as much as goes into one file, unless a single tensor has more


def save_pretrained(model: PreTrainedModel, folder: str | Path, group=None) -> None:
    """Write config, safetensors and index as `from_pretrained` reads them; every rank must call it.

    Each rank writes its shards. Then rank 0 puts them together a tensor at a time, so it holds the largest one and
    never the model; on the way the disk holds the model twice. A tied weight is written once. `group` must be able to
    move CPU tensors; `None` makes one. Raises `UsageError` where the folder exists already or cannot be written.
    """
    if stand_in.playing:
        return
    folder = Path(folder).expanduser().absolute()
    group = group or (dist.new_group(backend="gloo") if dist.is_initialized() else None)
    unfinished = on_rank_0(lambda: _prepare(folder), group)
    tensors = untied(model)
    for name, tensor in tensors.items():
        if not tensor.dim() or not tensor.dtype.is_floating_point:
            raise UsageError(f"{name} is {tensor.dtype} {list(tensor.shape)}; torch puts only real matrices together.")
    writer = dcp.HuggingFaceStorageWriter(
        str(unfinished), fqn_to_index_mapping=_files(tensors), save_distributed=True, enable_consolidation=True
    )
    try:
        dcp.save(tensors, storage_writer=writer, process_group=group)
    except CheckpointException as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        rank, (cause, _) = min(error.failures.items())
        raise UsageError(f"{folder} could not be written (rank {rank}: {first_line(cause):.150}).") from None
    on_rank_0(lambda: _complete(model, unfinished, folder), group)


def _prepare(folder: Path) -> Path:
    if folder.exists():
        raise UsageError(f"{folder} exists already; name a new folder for the model.")
    unfinished = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}{UNFINISHED}")
    try:
        unfinished.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written ({error.strerror}); name another folder.") from None
    return unfinished


def _files(tensors: dict[str, torch.Tensor]) -> dict[str, int]:
    """Names to numbers of files, from 1, in the model's order."""
    files, number, filled = {}, 1, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()  # of the whole tensor, not of this rank's shard
        if filled and filled + size > FILE_BYTES:
            number, filled = number + 1, 0
        files[name], filled = number, filled + size
    return files


def _complete(model: PreTrainedModel, unfinished: Path, folder: Path) -> None:
    try:
        shutil.rmtree(unfinished / "sharded")
        config = copy.deepcopy(model.config)
        config.dtype = next(model.parameters()).dtype
        # fully_shard gave the model a class made at run time, whose name transformers would not find.
        config.architectures = [next(kind for kind in type(model).__mro__ if not issubclass(kind, FSDPModule)).__name__]
        config.save_pretrained(unfinished)
        if model.can_generate():
            model.generation_config.save_pretrained(unfinished)
        unfinished.rename(folder)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise UsageError(f"{folder} could not be written ({error.strerror}); name another folder.") from None
