"""Meters: allocator bytes from mark to mark, on CUDA or a CPU, and the process's resident memory."""

import resource
import sys

import psutil
import torch

from ..contract.record import MEASURED_CPU, MEASURED_CUDA
from .allocator import AllocatorTrace, Lap, count_every_thread


def resident_bytes() -> tuple[int, int]:
    """Resident memory of this process: now, and at its highest so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    now = psutil.Process().memory_info().rss
    # The kernel updates the maximum lazily, so the present value can be above it.
    return now, max(now, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


class CpuMeter:
    """Laps from the profiler's memory events. The profiler slows what it watches, so timed steps go without."""

    how = MEASURED_CPU
    slows_steps = True
    device_name = "cpu"

    def __init__(self):
        count_every_thread(True)
        self._trace = None

    def start(self, of_a_step: bool = False) -> None:
        self.stop()  # two profilers at once would take each other's events
        self._trace = AllocatorTrace(of_a_step)

    def stop(self) -> Lap | None:
        """The lap since `start`, or `None` where the meter was not running."""
        trace, self._trace = self._trace, None
        return trace and trace.stop()

    def synchronize(self) -> None:
        pass

    def close(self) -> None:
        self.stop()
        count_every_thread(False)


class CudaMeter:
    """Laps from the CUDA caching allocator's own counters: exact, and free of charge."""

    how = MEASURED_CUDA
    slows_steps = False

    def __init__(self, local_rank: int):
        self._device = torch.device("cuda", local_rank)
        self._before = 0

    @property
    def device_name(self) -> str:
        # Asking for the name before the first CUDA call would create a context, on the wrong GPU perhaps.
        return torch.cuda.get_device_name(self._device) if torch.cuda.is_initialized() else str(self._device)

    def start(self, of_a_step: bool = False) -> None:
        # Before the first CUDA call there is nothing to count, and asking would create the context too early.
        if torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before = torch.cuda.memory_allocated(self._device)

    def stop(self) -> Lap | None:
        """The lap since `start`, or `None` where nothing has used CUDA yet."""
        if not torch.cuda.is_initialized():
            return None
        return Lap(
            self._before,
            torch.cuda.memory_allocated(self._device),
            torch.cuda.max_memory_allocated(self._device),
            torch.cuda.max_memory_reserved(self._device),
        )

    def synchronize(self) -> None:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize(self._device)

    def close(self) -> None:
        pass


def meter_for(device_type: str, local_rank: int) -> CpuMeter | CudaMeter:
    return CudaMeter(local_rank) if device_type == "cuda" else CpuMeter()
