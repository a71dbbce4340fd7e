"""What this machine offers: devices, cores, and so how many ranks a launch gets by default."""

import os
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from ..contract.errors import UsageError
from ..contract.record import MEASURED_CPU, MEASURED_CUDA


@dataclass(frozen=True)
class Machine:
    """Devices that ranks can use. On a machine with GPUs a rank takes one GPU; elsewhere ranks share the cores."""

    gpus: int
    cores: int

    @property
    def backend(self) -> str:
        return "nccl" if self.gpus else "gloo"

    @property
    def how(self) -> str:
        return MEASURED_CUDA if self.gpus else MEASURED_CPU

    @property
    def default_ranks(self) -> int:
        return self.gpus or 2

    def check_ranks(self, ranks: int) -> int:
        """The number itself, once this machine can run it. Raises `UsageError` otherwise."""
        if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
            raise UsageError(f"ranks={ranks!r}: expected a whole number from 1 up.")
        if self.gpus and ranks > self.gpus:
            raise UsageError(
                f"ranks={ranks}: this machine has {self.gpus} GPU{'s' * (self.gpus > 1)}, one rank each; "
                'ask for fewer ranks, or set CUDA_VISIBLE_DEVICES="" to run on the CPU.'
            )
        if not self.gpus and ranks > (most := max(8, 4 * self.cores)):
            raise UsageError(f"ranks={ranks}: {self.cores} cores carry {most} ranks at most; ask for fewer.")
        return ranks

    def threads_per_rank(self, ranks: int) -> int:
        return max(1, self.cores // ranks)

    def describe(self) -> str:
        devices = f"{self.gpus} GPUs with NCCL" if self.gpus else f"a CPU with gloo, {self.cores} cores"
        return f"{self.default_ranks} ranks by default on {devices}; numbers are {self.how}"


def machine() -> Machine:
    """This machine, as the environment shows it now."""
    return _machine(os.environ.get("CUDA_VISIBLE_DEVICES"))


@cache
def _machine(visible_devices: str | None) -> Machine:
    return Machine(0 if visible_devices == "" else _gpu_count(), _core_count())


def available_ranks(wanted: int | None = None) -> int:
    """`wanted` ranks on a CPU, and with GPUs no more than there are; the machine's default unless given."""
    wanted = wanted or machine().default_ranks
    return min(wanted, machine().gpus or wanted)


def free_bytes(container: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory that processes here can still take: the machine's, or less where a container has a limit."""
    free = psutil.virtual_memory().available
    try:
        limit, used = (int((container / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no such file outside of containers, and `max` for no limit
        return free
    return max(0, min(free, limit - used))


def _core_count() -> int:
    # A container or a scheduler may give us fewer cores than the machine has.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _gpu_count() -> int:
    # torch is the judge, but importing it takes seconds: not where no driver can be seen.
    drivers = (Path("/dev/nvidiactl"), Path("/dev/kfd"), Path("/dev/dxg"))
    if not shutil.which("nvidia-smi") and not any(driver.exists() for driver in drivers):
        return 0
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # count without creating a CUDA context
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0
