"""Which GPUs a launch takes: those named, or free ones, each under a lock, so that launches do not collide."""

import math
import os
import random
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from ...contract.errors import UsageError
from ...contract.units import format_bytes, format_ranks
from ..machine import Machine
from . import locks, nvidia_smi

_BUSY_SHARE = 0.1  # of a GPU's memory in use by others; a desktop and idle contexts stay below
_SETTLE_SECONDS = 0.3  # two launches at the same moment may each see the other's first lock
_POLL_SECONDS = 1.0
_MOST_REASONS = 3


@dataclass(frozen=True)
class Gpu:
    """A GPU that ranks may see: its number, what CUDA_VISIBLE_DEVICES calls it, and what is known of its memory."""

    number: int
    entry: str
    listed: nvidia_smi.Listed | None = None

    @property
    def lock_name(self) -> str:
        name = self.listed.uuid if self.listed else f"device-{self.entry}"
        return re.sub(r"[^A-Za-z0-9-]", "-", name)[:100]

    @property
    def used_share(self) -> float:
        """Between 0 and 1, to the percent; 0 where nothing is known."""
        if not self.listed or self.listed.used_bytes is None or not self.listed.total_bytes:
            return 0.0
        return round(self.listed.used_bytes / self.listed.total_bytes, 2)

    def busy(self) -> str | None:
        """Who uses it, where somebody outside the lab does."""
        if self.used_share <= _BUSY_SHARE:
            return None
        who = " and ".join(nvidia_smi.processes_on(self.listed.uuid)[:2]) or "a process that is not visible here"
        return f"busy ({format_bytes(self.listed.used_bytes)} used by {who})"


@contextmanager
def taken(
    machine: Machine, ranks: int, gpus: list[int] | None = None, wait: float = 0, run_id: str = ""
) -> Iterator[dict[str, str]]:
    """Hold one GPU per rank, and yield what the ranks' environment needs to see these alone.

    `gpus` are numbers as `nvidia-smi` prints them, or positions where it is missing; without them the launch takes
    the freest. Both stay among the devices of CUDA_VISIBLE_DEVICES where that is set. `wait` is how many seconds
    others may take to leave. Raises `UsageError` that says who holds what. Without GPUs it yields nothing.
    """
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait < math.inf:
        raise UsageError(f"wait={wait!r}: expected a number of seconds from 0 up.")
    if not machine.gpus:
        if gpus is not None:
            raise UsageError(f"gpus={gpus!r}: this machine has no GPU; leave gpus out to run on the CPU.")
        yield {}
        return
    with ExitStack() as held:
        chosen = _take(machine, ranks, gpus, wait, run_id, held)
        # nvidia-smi counts by bus, CUDA by speed unless told.
        order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if all(gpu.listed for gpu in chosen) else {}
        yield {"CUDA_VISIBLE_DEVICES": ",".join(gpu.entry for gpu in chosen), **order}


def rank_count(machine: Machine, ranks: int | None, gpus: list[int] | None) -> int:
    """The ranks asked for, else one per named GPU, else the machine's default. Raises `UsageError` for too many."""
    if ranks is None:
        ranks = len(gpus) if isinstance(gpus, list | tuple) and gpus else machine.default_ranks
    return machine.check_ranks(ranks)


def parse_gpus(text: str) -> list[int]:
    """`0,2` as the command line has it. Raises `UsageError` for anything else."""
    if not re.fullmatch(r"\d{1,4}(,\d{1,4})*", text, re.ASCII):
        raise UsageError(f"--gpus {text[:60]}: expected the numbers of GPUs with commas between, as in 0,2.")
    return [int(number) for number in text.split(",")]


def visible_gpus(machine: Machine) -> list[Gpu]:
    """The GPUs that a rank could see: all, or those of CUDA_VISIBLE_DEVICES.

    Memory is unknown where `nvidia-smi` is missing or counts otherwise than torch, as with MIG slices.
    """
    listed, variable = nvidia_smi.list_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES")
    entries = [gpu.index for gpu in listed] if variable is None else variable.split(",")
    entries = [str(entry).strip() for entry in entries]
    found = [Gpu(gpu.index, entry, gpu) for entry in entries for gpu in listed if _names(entry, gpu)]
    if len(found) == machine.gpus:
        return found
    entries = entries if variable else [str(number) for number in range(machine.gpus)]
    numbers = [int(entry) if entry.isdecimal() else place for place, entry in enumerate(entries)]
    return [Gpu(number, entry) for number, entry in zip(numbers, entries, strict=True)][: machine.gpus]


def _names(entry: str, gpu: nvidia_smi.Listed) -> bool:
    return entry == str(gpu.index) or (entry.startswith("GPU-") and gpu.uuid.startswith(entry))


def _take(machine: Machine, ranks: int, wanted, wait: float, run_id: str, held: ExitStack) -> list[Gpu]:
    deadline, said = time.monotonic() + max(wait, _SETTLE_SECONDS), False
    while True:
        candidates = _candidates(visible_gpus(machine), ranks, wanted)
        chosen, refused = _attempt(candidates, ranks, wanted is not None, run_id, held)
        if chosen:
            return chosen if wanted else sorted(chosen, key=lambda gpu: gpu.number)
        left = deadline - time.monotonic()
        if left <= 0:
            raise UsageError(_too_few(ranks, refused, wanted is not None))
        if wait and not said:
            print(
                f"Waiting at most {wait:g} s for {_counted(ranks)}: {_reasons(refused)}.", file=sys.stderr, flush=True
            )
            said = True
        time.sleep(min(left, (_POLL_SECONDS if wait else _SETTLE_SECONDS) * random.uniform(0.2, 1.0)))


def _candidates(visible: list[Gpu], ranks: int, wanted: list[int] | None) -> list[Gpu]:
    if wanted is None:
        return sorted(visible, key=lambda gpu: (gpu.used_share, gpu.number))
    by_number = {gpu.number: gpu for gpu in visible}
    whole = isinstance(wanted, list | tuple) and wanted and all(type(number) is int for number in wanted)
    if not whole or len(set(wanted)) < len(wanted) or not set(wanted) <= set(by_number):
        known = ", ".join(map(str, sorted(by_number)))
        raise UsageError(f"gpus={wanted!r:.60}: expected numbers of GPUs, each once, out of {known}.")
    if len(wanted) != ranks:
        raise UsageError(f"gpus={wanted!r:.60}: {format_ranks(ranks)}, one GPU each; name {_counted(ranks)}.")
    return [by_number[number] for number in wanted]


def _attempt(candidates, ranks, named: bool, run_id, held) -> tuple[list[Gpu], list[tuple[Gpu, str]]]:
    chosen, refused = [], []
    with ExitStack() as mine:
        for gpu in candidates:
            with ExitStack() as lock:
                try:
                    lock.enter_context(locks.locked(gpu.lock_name, run_id))
                except locks.Held as other:
                    refused.append((gpu, f"held by {other.holder}"))
                    continue
                if not named and (reason := gpu.busy()):  # only now: who holds a lock uses memory, too
                    refused.append((gpu, reason))
                    continue
                mine.push(lock.pop_all())
            chosen.append(gpu)
            if len(chosen) == ranks:
                held.push(mine.pop_all())
                return chosen, []
    return [], refused


def _too_few(ranks: int, refused: list[tuple[Gpu, str]], named: bool) -> str:
    way_out = "name others" if named else "ask for fewer ranks, name GPUs with gpus=[…]"
    wait = "or wait with wait=SECONDS (--wait SECONDS)"
    return f"Too few GPUs are free for {format_ranks(ranks)}: {_reasons(refused)}; {way_out}, {wait}."


def _reasons(refused: list[tuple[Gpu, str]]) -> str:
    numbers: dict[str, list[str]] = {}
    for gpu, reason in sorted(refused, key=lambda pair: pair[0].number):
        numbers.setdefault(reason, []).append(str(gpu.number))
    said = [
        f"GPU{'s' * (len(of) > 1)} {', '.join(of)} {reason}" for reason, of in list(numbers.items())[:_MOST_REASONS]
    ]
    return " · ".join(said) + (" and more" if len(numbers) > _MOST_REASONS else "")


def _counted(gpus: int) -> str:
    return f"{gpus} GPU{'s' * (gpus != 1)}"
