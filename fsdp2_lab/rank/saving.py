"""Saving a training state: safetensors by torch.distributed.checkpoint, each rank its shards, JSON beside them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict

from ..contract.errors import UsageError, first_line
from ..contract.saved_state import STATE_FILE, SavedState, SavedTensor, to_text

MODEL, OPTIMIZER, RANDOM = "model.", "optimizer.", "random."


def collect(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int) -> tuple[dict, dict]:
    """All tensors of a training state by name, sharded as they are, and the optimizer's values that are none.

    The tensors are the model's and the optimizer's own: what is loaded into them is loaded. A fresh optimizer gets
    its states, of zeros.
    """
    flat = get_optimizer_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
    facts = {name: value for name, value in flat.items() if not isinstance(value, torch.Tensor)}
    tensors = {MODEL + name: value for name, value in untied(model).items()}
    tensors |= {OPTIMIZER + name: value for name, value in flat.items() if isinstance(value, torch.Tensor)}
    tensors[f"{RANDOM}cpu.{rank}"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors[f"{RANDOM}cuda.{rank}"] = torch.cuda.get_rng_state()
    return tensors, facts


def untied(model: nn.Module) -> dict[str, torch.Tensor]:
    """A model's state by name, without second names of a tied tensor: safetensors refuses tensors that share memory."""
    first_names = {name for name, _ in model.named_parameters()}
    second_names = {name for name, _ in model.named_parameters(remove_duplicate=False)} - first_names
    return {name: value for name, value in get_model_state_dict(model).items() if name not in second_names}


class StateWriter(dcp.HuggingFaceStorageWriter):
    """Writes every rank's shards into `unfinished`; when all have, rank 0 adds the JSON and renames it to `final`."""

    def __init__(self, unfinished: Path, final: Path, state: SavedState, prune: Callable[[], None]):
        super().__init__(str(unfinished), save_distributed=True)
        self._unfinished, self.final, self._state, self._prune = unfinished, final, state, prune

    def finish(self, metadata, results) -> None:
        """Called on rank 0, once every rank's files are on the disk."""
        shapes = metadata.state_dict_metadata.items()
        self._state.tensors = {name: SavedTensor(_name(of.properties.dtype), list(of.size)) for name, of in shapes}
        for name in sorted({each.storage_data.relative_path for part in results for each in part}):
            if not (self._unfinished / name).is_file():
                raise UsageError(f"{name}, which another host wrote, is not in {self.final.parent}; share that folder.")
            self._state.files[name] = (self._unfinished / name).stat().st_size
        with open(self._unfinished / STATE_FILE, "x", encoding="utf-8") as file:
            file.write(to_text(self._state))
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(self._unfinished)
        os.rename(self._unfinished, self.final)
        _sync_folder(self.final.parent)
        self._prune()

    def discard(self) -> None:
        shutil.rmtree(self._unfinished, ignore_errors=True)


def save(tensors: dict, writer: StateWriter, group) -> None:
    """Save, and return when all ranks have. Raises `UsageError` where a rank could not write its part."""
    _finish(lambda: dcp.save(tensors, storage_writer=writer, process_group=group), writer)


def save_async(tensors: dict, writer: StateWriter, group) -> Callable[[], None]:
    """Copy the tensors and save the copies in a thread; the function returned waits for that, and raises as `save`."""
    if group is None:
        save(tensors, writer, group)
        return lambda: None
    future = dcp.async_save(tensors, storage_writer=writer, process_group=group)
    return lambda: _finish(future.result, writer)


def _finish(write: Callable, writer: StateWriter) -> None:
    try:
        write()
    except CheckpointException as error:  # on every rank, with what failed on any
        writer.discard()
        rank, (cause, _) = min(error.failures.items())
        if isinstance(cause, UsageError):
            raise UsageError(str(cause)) from None
        if isinstance(cause, OSError):
            reason = f"rank {rank}: {cause.strerror or first_line(cause)}"
            raise UsageError(
                f"{writer.final} could not be saved ({reason}); what was saved before is whole: "
                "make room, or name another --save-to, and say --resume."
            ) from None
        raise


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
