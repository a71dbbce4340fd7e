"""When FSDP2 gathers, computes with, reduces and frees each of its units in a step, from its spans and the frees."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..contract.record import MOST_SPANS, ROOT_UNIT, Span
from .allocator import Event, Lap, Operation
from .fsdp_names import (
    ALL_GATHER,
    COPY_OUT,
    POST_BACKWARD,
    POST_FORWARD,
    PRE_BACKWARD,
    PRE_FORWARD,
    REDUCE,
    RESHARD,
    mark_of,
)

# One rank alone copies its parameters without a span of their own, inside these.
_GATHERING = (COPY_OUT, PRE_FORWARD, PRE_BACKWARD)
_COLLECTIVES = {ALL_GATHER: ("all_gather", "gather"), REDUCE: ("reduce_scatter", "reduce_scatter")}


@dataclass
class _Held:
    """A unit's whole parameters: the addresses they live at, and the operation that made them."""

    start: float
    maker: Operation | None = None
    blocks: dict[int, int] = field(default_factory=dict)  # address → bytes
    size_bytes: int | None = None  # once it is made


class SpanFinder:
    """Goes through one step after another; a unit that stays gathered at the end of one is so in the next."""

    def __init__(self):
        self._held: dict[str, _Held] = {}

    def of(self, lap: Lap) -> list[Span]:
        """The spans of the step that `lap` holds the events of, in the order in which they began."""
        self._unit_of = {address: unit for unit, held in self._held.items() for address in held.blocks}
        self._made: set[int] = set()  # in this step, and no parameter's
        self._earlier: dict[str, Span] = {}  # gathered before the step, told when they are freed
        self._running: dict[int, Event] = {}  # spans that may hold a collective
        self._since: dict[tuple[str, str], float] = {}
        self._spans: list[Span] = []
        for event in lap.events:
            self._settle(event)
            if event.begins:
                self._enter(event)
            elif event.size_bytes > 0:
                self._allocate(event)
            else:
                self._free(event)
        end = max((event.seconds for event in lap.events), default=0.0)
        for unit, held in self._held.items():
            self._add("gathered", unit, held.start, end, held.size_bytes or sum(held.blocks.values()))
            held.start, held.maker = 0.0, None
        self._spans += self._earlier.values()
        return sorted(self._spans, key=lambda span: span.start_seconds)[:MOST_SPANS]

    def _add(self, kind: str, unit: str, start: float, end: float, size_bytes: int | None = None) -> None:
        self._spans.append(Span(kind, unit or ROOT_UNIT, round(start, 6), round(end, 6), size_bytes))

    def _enter(self, event: Event) -> None:
        name = event.operation.name
        if name.startswith("c10d::"):
            self._collective(event, name)
        if not (found := mark_of(name)):
            return
        mark, unit = found
        if mark in _COLLECTIVES:
            self._running[id(event.operation)] = event
        elif mark == PRE_FORWARD and not any(place.is_backward for place in _chain(event.operation)):
            self._since.setdefault(("forward", unit), event.end_seconds)
        elif mark == PRE_BACKWARD:
            self._since.setdefault(("backward", unit), event.end_seconds)
        elif mark in (POST_FORWARD, POST_BACKWARD):
            kind = "forward" if mark == POST_FORWARD else "backward"
            if (start := self._since.pop((kind, unit), None)) is not None:
                self._add(kind, unit, start, event.seconds)

    def _collective(self, event: Event, name: str) -> None:
        """Among one rank there is no collective, though FSDP2's span is there; so the collective itself counts."""
        for place in _chain(event.operation.inside):
            if whole := self._running.get(id(place)):
                mark, unit = mark_of(place.name)
                kind, sort = _COLLECTIVES[mark]
                if sort in name:
                    self._add(kind, unit, whole.seconds, whole.end_seconds)
                    del self._running[id(place)]
                return

    def _allocate(self, event: Event) -> None:
        self._forget(event.address)  # it was freed unseen
        place, unit = _innermost(event.operation)
        if not place or mark_of(place.name)[0] not in _GATHERING:
            self._made.add(event.address)
            return
        held = self._held.get(unit)
        if not held or not held.maker:  # one that is made already was freed unseen, between two steps
            maker = next(outer for outer in reversed([*_chain(event.operation)]) if _is_of(outer, unit))
            held = self._held[unit] = _Held(event.seconds, maker)
        held.blocks[event.address] = event.size_bytes
        self._unit_of[event.address] = unit

    def _free(self, event: Event) -> None:
        unit = self._unit_of.get(event.address)
        held = self._held.get(unit) if unit is not None else None
        if held and event.address in held.blocks:
            self._forget(event.address)
            if not held.blocks:
                del self._held[unit]
                if held.size_bytes:  # else it was a temporary of the copying
                    self._add("gathered", unit, held.start, event.seconds, held.size_bytes)
        elif event.address in self._made:
            self._made.discard(event.address)
        else:
            place, unit = _innermost(event.operation)
            if place and mark_of(place.name)[0] in (POST_FORWARD, RESHARD):
                earlier = self._earlier.setdefault(unit, Span("gathered", unit or ROOT_UNIT, 0.0, 0.0, 0))
                earlier.end_seconds = round(event.seconds, 6)
                earlier.size_bytes -= event.size_bytes

    def _forget(self, address: int) -> None:
        unit = self._unit_of.pop(address, None)
        if unit is not None and unit in self._held:
            self._held[unit].blocks.pop(address, None)
        self._made.discard(address)

    def _settle(self, event: Event) -> None:
        """What lives on when the operation that gathers a unit has ended is the unit; the rest was for the copying."""
        for held in self._held.values():
            if held.size_bytes is None and not any(place is held.maker for place in _chain(event.operation)):
                held.size_bytes = sum(held.blocks.values())


def _chain(operation: Operation | None) -> Iterator[Operation]:
    while operation:
        yield operation
        operation = operation.inside


def _innermost(operation: Operation | None) -> tuple[Operation | None, str]:
    """FSDP2's own span that an operation runs in, and its unit."""
    place = next((place for place in _chain(operation) if mark_of(place.name)), None)
    return place, mark_of(place.name)[1] if place else ""


def _is_of(operation: Operation, unit: str) -> bool:
    found = mark_of(operation.name)
    return found is not None and found[0] in _GATHERING and found[1] == unit
