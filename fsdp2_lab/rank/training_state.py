"""A run's training state: when it is saved, where, and what it goes on from."""

import fcntl
import secrets
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from ..contract import stand_in
from ..contract.errors import UsageError
from ..contract.saved_state import (
    LOCK_FILE,
    UNFINISHED,
    SavedState,
    check_destination,
    find_saved,
    finished_steps,
    read_state,
    save_folder,
    unfinished,
)
from ..contract.settings import Settings
from .agreement import on_rank_0
from .resuming import restore
from .saving import StateWriter, collect, save, save_async


class TrainingState:
    """Model, optimizer, position in the data and random numbers of all ranks, saved and resumed together.

    `--save-every`, `--save-to`, `--save-async` and `--save-keep` say when and where; `--resume` what to go on
    from, on any number of ranks with the same global batch. Every rank must make it and call its methods.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, settings: Settings):
        self._model, self._optimizer, self._settings = model, optimizer, settings
        self._step = 0  # steps that are done
        self._pending = None
        self._off = stand_in.playing is not None or not (settings.save_every or settings.resume)
        if self._off:
            return
        # A group of its own, on CPUs: an asynchronous save talks in a thread while training talks on the default one.
        self._group = dist.new_group(backend="gloo") if dist.is_initialized() else None
        self._folder = save_folder(settings.save_to).absolute()
        self._nonce = on_rank_0(lambda: secrets.token_hex(4), self._group)

    def resume(self) -> int:
        """Go on from what `--resume` names; the number of steps that are done, 0 where there is nothing to resume.

        The learning rate and the optimizer's other values come from there. Raises `UsageError` on every rank for
        what is no whole state, or was saved by another model, optimizer or order of data.
        """
        if self._off:
            return 0
        found = on_rank_0(self._find, self._group)
        if found:
            folder, state = found
            restore(folder, state, self._model, self._optimizer, self._settings, self._group)
            self._step = state.step
            if _rank() == 0:
                print(f"resumed from {folder}, saved by {state.ranks} ranks after step {state.step}", flush=True)
        if self._settings.save_every:
            on_rank_0(self._claim, self._group)
        return self._step

    def save_when_due(self) -> None:
        """Count a step, and save after every `--save-every` of them. Raises `UsageError` where it cannot be written."""
        if self._off:
            return
        self._step += 1
        if self._settings.save_every and self._step % self._settings.save_every == 0:
            self.save()

    def save(self) -> None:
        """Save now; with `--save-async` the tensors are copied, and written while training goes on."""
        self.wait()  # two saves at once would want two copies
        tensors, facts = collect(self._model, self._optimizer, _rank())
        final = self._folder / f"step-{self._step}"
        state = SavedState(
            step=self._step,
            ranks=_ranks(),
            seed=self._settings.seed,
            sequences=self._settings.batch * _ranks(),
            seq=self._settings.seq,
            optimizer=type(self._optimizer).__name__,
            facts=facts,
        )
        writer = StateWriter(self._folder / f"{final.name}.{self._nonce}{UNFINISHED}", final, state, self._prune)
        if self._settings.save_async:
            self._pending = save_async(tensors, writer, self._group)
        else:
            save(tensors, writer, self._group)

    def wait(self) -> None:
        """Wait for a save that is still going on. Raises `UsageError` where it could not be written."""
        pending, self._pending = self._pending, None
        if pending:
            pending()

    def close(self) -> None:
        """Wait for a save that is still going on, and let others save there."""
        self.wait()
        if lock := self.__dict__.pop("_lock", None):
            lock.close()

    def _find(self) -> tuple[Path, SavedState] | None:
        folder = find_saved(self._settings.resume, self._settings.save_to)
        if folder is None:
            if self._settings.resume:
                print(f"nothing saved in {self._folder} yet: training begins at step 0", flush=True)
            return None
        return folder, read_state(folder)

    def _claim(self) -> None:
        """Lock the folder, look at what is there, and clear away what killed runs left unfinished."""
        check_destination(self._folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = open(self._folder / LOCK_FILE, "a")  # noqa: SIM115 - held as long as this run may save
        except OSError as error:
            raise UsageError(f"--save-to {self._folder} cannot be written ({error.strerror}); name another.") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"Another run saves to {self._folder}; wait for it, or name another --save-to.") from None
        except OSError:
            pass  # a network folder without locks
        if further := [step for step in finished_steps(self._folder) if step > self._step]:
            raise UsageError(
                f"{self._folder} has step-{further[-1]} already, and this run begins at step {self._step}; "
                "say --resume latest, or name another --save-to."
            )
        for leftover in unfinished(self._folder):
            shutil.rmtree(leftover, ignore_errors=True)

    def _prune(self) -> None:
        keep = self._settings.save_keep
        for path in list(finished_steps(self._folder).values())[:-keep] if keep else []:
            # Renamed first: killed half-way, it is unfinished, not a state that lacks files.
            doomed = path.rename(path.with_name(f"{path.name}.{secrets.token_hex(4)}{UNFINISHED}"))
            shutil.rmtree(doomed, ignore_errors=True)


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def _ranks() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1
