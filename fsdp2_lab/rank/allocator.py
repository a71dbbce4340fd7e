"""Live bytes of torch's CPU allocator, from the profiler's memory events. The one file on private torch names.

The profiler reports an allocation only from threads it watches. Gloo's worker threads are not among them,
and whether they or the main thread drop the last reference to a buffer is a race: lost frees would make the
account grow from step to step. The allocator's own flag for reporting makes it count every thread, watched or
not, so that each event carries the right total.
"""

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile


@dataclass(frozen=True)
class Lap:
    """Bytes between two marks. `reserved_bytes` is the caching allocator's, `None` on a CPU."""

    bytes_before: int
    bytes_after: int
    peak_bytes: int
    reserved_bytes: int | None = None


def count_every_thread(on: bool) -> None:
    """Make the CPU allocator count frees and allocations of all threads; costs about 0.4 µs for each."""
    library = next(Path(torch.__file__).parent.glob("lib/libc10.*"))
    flag = ctypes.c_bool.in_dll(ctypes.CDLL(str(library)), "FLAGS_caffe2_report_cpu_memory_usage")
    flag.value = on


class AllocatorTrace:
    """The allocator's live bytes over one lap.

    Events come from the thread that starts and stops it; each carries the total of all threads. So a peak that
    another thread makes and undoes between two events of this one is not seen.
    """

    _mapped: ClassVar[set[int]] = set()  # addresses of mapped files, over all laps

    def __init__(self):
        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True)
        self._profile.start()
        torch.empty(1)  # made and freed: even a lap without allocations has events to read a total from

    def stop(self) -> Lap | None:
        """The lap; `None` where another profiler was running and took the events."""
        torch.empty(1)  # again, so that what other threads did last is in the last total
        self._profile.stop()
        totals = list(self._totals())
        if len(totals) < 4:
            return None
        # The first two and the last two events are the probes, made and freed.
        return Lap(totals[1], totals[-1], max(*totals[1:-2], totals[-1]))

    def _totals(self):
        for event in sorted(self._allocations(), key=lambda event: event.start_time_ns):
            _, fields = event.typed
            # A mapped file speaks up too, once as reserved and once at its end, with a total of 0. Its pages
            # are the page cache's, not the allocator's; resident memory shows them.
            if fields.total_reserved:
                self._mapped.add(fields.ptr)
            elif fields.ptr in self._mapped and fields.alloc_size < 0:
                self._mapped.discard(fields.ptr)
            else:
                yield fields.total_allocated

    def _allocations(self):
        pending = list(self._profile.profiler.kineto_results.experimental_event_tree())
        while pending:
            event = pending.pop()
            pending.extend(event.children)
            if event.typed[0] == _EventType.Allocation:
                yield event
