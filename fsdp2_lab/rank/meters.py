"""Meters: allocator bytes from mark to mark, on CUDA or a CPU, and the process's resident memory."""

import resource
import sys

import psutil
import torch

from ..contract.record import MEASURED_CPU, MEASURED_CUDA
from . import snapshot
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

    def held_on_device(self) -> tuple[None, None]:
        return None, None

    def close(self) -> None:
        self.stop()
        count_every_thread(False)


class CudaMeter:
    """Laps from the CUDA caching allocator's own counters: exact, and free of charge.

    What the bytes of a step are for comes from the profiler, as on a CPU, where it tells the same peak.
    """

    how = MEASURED_CUDA
    slows_steps = False

    def __init__(self, local_rank: int):
        self._device = torch.device("cuda", local_rank)
        self._before = 0
        self._trace = None

    @property
    def device_name(self) -> str:
        # Asking for the name before the first CUDA call would create a context, on the wrong GPU perhaps.
        return torch.cuda.get_device_name(self._device) if torch.cuda.is_initialized() else str(self._device)

    def start(self, of_a_step: bool = False) -> None:
        # Before the first CUDA call there is nothing to count, and asking would create the context too early.
        if torch.cuda.is_initialized():
            snapshot.begin_if_asked()
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before = torch.cuda.memory_allocated(self._device)
            self._trace = AllocatorTrace(of_a_step, "cuda") if of_a_step else None

    def stop(self) -> Lap | None:
        """The lap since `start`, or `None` where nothing has used CUDA yet."""
        if not torch.cuda.is_initialized():
            return None
        peak_bytes = torch.cuda.max_memory_allocated(self._device)
        after, reserved_bytes = torch.cuda.memory_allocated(self._device), torch.cuda.max_memory_reserved(self._device)
        trace, self._trace = self._trace, None
        events = trace.stop_with_events() if trace else []
        if max((event.total_bytes for event in events), default=0) != peak_bytes:  # it has missed some
            events = []
        return Lap(self._before, after, peak_bytes, reserved_bytes, events)

    def synchronize(self) -> None:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize(self._device)

    def held_on_device(self) -> tuple[int | None, int | None]:
        """What the allocator holds now, and what the driver counts as used on the GPU; `None` before CUDA is used."""
        if not torch.cuda.is_initialized():
            return None, None
        free_bytes, total_bytes = torch.cuda.mem_get_info(self._device)
        return torch.cuda.memory_reserved(self._device), total_bytes - free_bytes

    def close(self) -> None:
        pass


def meter_for(device_type: str, local_rank: int) -> CpuMeter | CudaMeter:
    return CudaMeter(local_rank) if device_type == "cuda" else CpuMeter()
