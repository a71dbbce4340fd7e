"""Live bytes of torch's allocator, from the profiler's memory events. The one file on private torch names.

The profiler reports an allocation only from threads it watches. Gloo's worker threads are not among them,
and whether they or the main thread drop the last reference to a buffer is a race: lost frees would make the
account grow from step to step. The CPU allocator's own flag for reporting makes it count every thread, watched or
not, so that each event carries the right total.
"""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

import torch
from torch._C._profiler import RecordScope, _EventType
from torch.profiler import ProfilerActivity, profile


class Operation(NamedTuple):
    """An operation or a named span, and the one it ran inside.

    `is_recorded` is true where autograd was recording: in a forward, and in what backward computes again.
    `is_backward` is true for what autograd's engine runs.
    """

    name: str
    inside: "Operation | None"
    is_recorded: bool = False
    is_backward: bool = False


class Event(NamedTuple):
    """An allocation, or with `size_bytes` below 0 a free, inside an operation; or that operation's beginning.

    `total_bytes` is what lives after it, of all threads; `end_seconds` is when an operation that begins will end.
    """

    seconds: float
    operation: Operation | None
    address: int = 0
    size_bytes: int = 0
    total_bytes: int = 0
    begins: bool = False
    end_seconds: float = 0.0


@dataclass(frozen=True)
class Lap:
    """Bytes between two marks. `reserved_bytes` is the caching allocator's, `None` on a CPU; `events` are a step's."""

    bytes_before: int
    bytes_after: int
    peak_bytes: int
    reserved_bytes: int | None = None
    events: list[Event] = field(default_factory=list, repr=False)


def count_every_thread(on: bool) -> None:
    """Make the CPU allocator count frees and allocations of all threads; costs about 0.4 µs for each."""
    library = next(Path(torch.__file__).parent.glob("lib/libc10.*"))
    flag = ctypes.c_bool.in_dll(ctypes.CDLL(str(library)), "FLAGS_caffe2_report_cpu_memory_usage")
    flag.value = on


class AllocatorTrace:
    """An allocator's live bytes over one lap; with `of_a_step`, also by which operations.

    Events come from the thread that starts and stops it; each carries the total of all threads. So a peak that
    another thread makes and undoes between two events of this one is not seen.
    """

    _mapped: ClassVar[set[int]] = set()  # addresses of mapped files, over all laps

    def __init__(self, of_a_step: bool = False, device_type: str = "cpu"):
        self._of_a_step, self._device_type = of_a_step, device_type
        # Not with shapes: those hold weak references to tensors, and then `module.to` fails.
        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True)
        self._profile.start()
        torch.empty(1)  # made and freed: even a lap without allocations has events to read a total from

    def stop(self) -> Lap | None:
        """The lap; `None` where another profiler was running and took the events."""
        torch.empty(1)  # again, so that what other threads did last is in the last total
        events = self.stop_with_events()
        places = [place for place, event in enumerate(events) if not event.begins]
        if len(places) < 4:
            return None
        # The first two and the last two are the probes, made and freed.
        totals = [events[place].total_bytes for place in places]
        peak_bytes = max(*totals[1:-2], totals[-1])
        between = events[places[1] + 1 : places[-2]] if self._of_a_step else []
        return Lap(totals[1], totals[-1], peak_bytes, events=between)

    def stop_with_events(self) -> list[Event]:
        """What happened, in its order, the probes of a CPU included."""
        self._profile.stop()
        return list(self._events())

    def _events(self) -> Iterator[Event]:
        began = None
        for start_ns, end_ns, kind, fields, operation in sorted(self._walk(), key=lambda found: found[0]):
            began = start_ns if began is None else began
            seconds = (start_ns - began) / 1e9
            if kind != _EventType.Allocation:
                yield Event(seconds, operation, begins=True, end_seconds=(end_ns - began) / 1e9)
            # A mapped file speaks up too, once as reserved and once at its end, with a total of 0. Its pages
            # are the page cache's, not the allocator's; resident memory shows them.
            elif fields.total_reserved:
                self._mapped.add(fields.ptr)
            elif fields.ptr in self._mapped and fields.alloc_size < 0:
                self._mapped.discard(fields.ptr)
            else:
                yield Event(seconds, operation, fields.ptr, fields.alloc_size, fields.total_allocated)

    def _walk(self) -> Iterator[tuple]:
        pending = [(event, None) for event in self._profile.profiler.kineto_results.experimental_event_tree()]
        while pending:
            event, inside = pending.pop()
            kind, fields = event.typed
            if self._of_a_step and kind == _EventType.TorchOp:
                inside = _operation(event.name, fields, inside)
                yield event.start_time_ns, event.end_time_ns, kind, fields, inside
            elif kind == _EventType.Allocation and fields.device.type == self._device_type:
                yield event.start_time_ns, event.start_time_ns, kind, fields, inside
            pending.extend((child, inside) for child in event.children)


def _operation(name: str, fields, inside: Operation | None) -> Operation:
    is_backward = fields.scope == RecordScope.BACKWARD_FUNCTION or name.startswith("autograd::engine::")
    return Operation(name, inside, not is_backward and fields.sequence_number >= 0, is_backward)
