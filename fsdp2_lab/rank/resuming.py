"""Resuming a training state, on the number of ranks that saved it or on another."""

from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

from ..contract.errors import UsageError, first_line
from ..contract.saved_state import SavedState
from ..contract.settings import Settings
from .saving import MODEL, OPTIMIZER, RANDOM, collect


def restore(
    folder: Path, state: SavedState, model: nn.Module, optimizer: torch.optim.Optimizer, settings: Settings, group
) -> None:
    """Read a saved state into a sharded model and its optimizer; each rank reads its own shards' bytes.

    Random numbers go on where they were if there are as many ranks as then; another number begins anew, from the seed
    and the step. Raises `UsageError` for a state of another model, optimizer or order of data.
    """
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    _check_run(folder, state, optimizer, settings, ranks)
    tensors, facts = collect(model, optimizer, rank)
    if ranks != state.ranks or any(name not in state.tensors for name in tensors if name.startswith(RANDOM)):
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(RANDOM)}
    _check_tensors(folder, state, tensors)
    if missing := sorted(facts.keys() ^ state.facts.keys()):
        raise UsageError(f"{folder} and this run differ in {missing[0]}; build the optimizer as it was built then.")
    try:
        dcp.load(tensors, storage_reader=dcp.HuggingFaceStorageReader(str(folder)), process_group=group)
    except CheckpointException as error:
        rank, (cause, _) = min(error.failures.items())
        raise UsageError(
            f"{folder} cannot be read (rank {rank}: {first_line(cause):.150}); copy it again, or resume from another."
        ) from None
    flat = {name.removeprefix(OPTIMIZER): value for name, value in tensors.items() if name.startswith(OPTIMIZER)}
    flat |= {name: _as_before(state.facts[name], value) for name, value in facts.items()}
    asked = [group["lr"] for group in optimizer.param_groups]
    set_optimizer_state_dict(model, optimizer, flat, options=StateDictOptions(flatten_optimizer_state_dict=True))
    if rank == 0 and (saved := [group["lr"] for group in optimizer.param_groups]) != asked:
        print(f"the learning rate is the saved one, {saved[0]:g}, not {asked[0]:g}", flush=True)
    _restore_random(tensors, settings.seed + state.step, rank)


def _restore_random(tensors: dict, seed: int, rank: int) -> None:
    if f"{RANDOM}cpu.{rank}" not in tensors:
        torch.manual_seed((seed * 0x9E3779B97F4A7C15 + rank) % 2**63)  # spread: seeds of neighbours must not meet
        return
    torch.set_rng_state(tensors[f"{RANDOM}cpu.{rank}"])
    if f"{RANDOM}cuda.{rank}" in tensors:
        torch.cuda.set_rng_state(tensors[f"{RANDOM}cuda.{rank}"])


def _check_run(folder: Path, state: SavedState, optimizer, settings: Settings, ranks: int) -> None:
    if (kind := type(optimizer).__name__) != state.optimizer:
        raise UsageError(f"{folder} was saved with {state.optimizer}, and this run has {kind}; build the one it had.")
    sequences = settings.batch * ranks
    if sequences != state.sequences:
        fits = f"say --batch {state.sequences // ranks}" if state.sequences % ranks == 0 else "take other ranks"
        raise UsageError(
            f"{folder} was saved with {state.sequences} sequences in a step, and this run has {sequences} "
            f"(--batch {settings.batch} on {ranks} ranks), which would change the order of the data; {fits}."
        )
    for name in ("seq", "seed"):
        if (now := getattr(settings, name)) != (then := getattr(state, name)):
            raise UsageError(f"--{name} {now}: {folder} was saved with --{name} {then}, and other text would follow.")


def _check_tensors(folder: Path, state: SavedState, tensors: dict) -> None:
    saved = {name: of for name, of in state.tensors.items() if not name.startswith(RANDOM)}
    needed = {name: tensor for name, tensor in tensors.items() if not name.startswith(RANDOM)}
    for name, tensor in needed.items():
        shown = name.removeprefix(MODEL)
        if name not in saved:
            raise UsageError(f"{folder} lacks {shown}, which this run needs; give --model the one it was saved with.")
        dtype, shape = str(tensor.dtype).removeprefix("torch."), list(tensor.shape)
        if (saved[name].dtype, saved[name].shape) != (dtype, shape):
            raise UsageError(
                f"{folder} has {shown} as {saved[name].dtype} {saved[name].shape}, and this run as {dtype} {shape}; "
                "give --model and --param-dtype as it was saved with."
            )
    if extra := sorted(saved.keys() - needed.keys()):
        shown = extra[0].removeprefix(MODEL)
        raise UsageError(f"{folder} has {shown}, which this run has not; give --model the one it was saved with.")


def _as_before(saved, now):
    return tuple(saved) if isinstance(now, tuple) else saved  # JSON has lists alone
