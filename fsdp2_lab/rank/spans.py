"""When FSDP2 gathers, computes with, reduces and frees each of its units in a step, from its spans and the frees."""

from dataclasses import dataclass, field

from ..contract.sharded import MOST_SPANS, ROOT_UNIT, Span
from .allocator import Event, Lap
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
_AUTOGRAD = "a node of autograd"


@dataclass
class _Place:
    """A span that runs. What is inside it is told by time: under a dispatch mode the profiler's tree loses that."""

    mark: str
    unit: str
    start: float
    end: float
    is_counted: bool = False  # as a collective


@dataclass
class _Held:
    """A unit's whole parameters: the addresses they live at, and the span that makes them."""

    start: float
    maker: _Place | None = None
    blocks: dict[int, int] = field(default_factory=dict)  # address → bytes
    size_bytes: int = 0  # once it is made


class SpanFinder:
    """Goes through one step after another; a unit that stays gathered at the end of one is so in the next."""

    def __init__(self):
        self._held: dict[str, _Held] = {}

    def of(self, lap: Lap) -> list[Span]:
        """The spans of the step that `lap` holds the events of, in the order in which they began."""
        self._unit_of = {address: unit for unit, held in self._held.items() for address in held.blocks}
        self._made: set[int] = set()  # in this step, and no parameter's
        self._earlier: dict[str, Span] = {}  # gathered before the step, told when they are freed
        self._places: list[_Place] = []  # each inside the one before it
        self._since: dict[tuple[str, str], float] = {}
        self._spans: list[Span] = []
        for event in lap.events:
            while self._places and self._places[-1].end <= event.seconds:
                self._settle(self._places.pop())
            if event.begins:
                self._enter(event)
            elif event.size_bytes > 0:
                self._allocate(event)
            else:
                self._free(event)
        end = max((event.seconds for event in lap.events), default=0.0)
        for unit, held in self._held.items():
            held.size_bytes = held.size_bytes or sum(held.blocks.values())
            self._add("gathered", unit, held.start, end, held.size_bytes)
            held.start, held.maker = 0.0, None
        self._spans += self._earlier.values()
        return sorted(self._spans, key=lambda span: span.start_seconds)[:MOST_SPANS]

    def _add(self, kind: str, unit: str, start: float, end: float, size_bytes: int | None = None) -> None:
        self._spans.append(Span(kind, unit or ROOT_UNIT, round(start, 6), round(end, 6), size_bytes))

    def _enter(self, event: Event) -> None:
        name = event.operation.name
        if name.startswith("c10d::"):
            self._collective(name)
        if event.operation.is_backward:
            self._places.append(_Place(_AUTOGRAD, "", event.seconds, event.end_seconds))
        if not (found := mark_of(name)):
            return
        mark, unit = found
        if mark == PRE_FORWARD and not any(place.mark == _AUTOGRAD for place in self._places):  # no recomputation
            self._since.setdefault(("forward", unit), event.end_seconds)
        elif mark == PRE_BACKWARD:
            self._since.setdefault(("backward", unit), event.end_seconds)
        elif mark in (POST_FORWARD, POST_BACKWARD):
            kind = "forward" if mark == POST_FORWARD else "backward"
            if (start := self._since.pop((kind, unit), None)) is not None:
                self._add(kind, unit, start, event.seconds)
        self._places.append(_Place(mark, unit, event.seconds, event.end_seconds))

    def _collective(self, name: str) -> None:
        """Count FSDP2's span by the collective in it: of one rank alone the span is there, and no collective."""
        place = self._innermost()
        if place and place.mark in _COLLECTIVES and not place.is_counted:
            kind, sort = _COLLECTIVES[place.mark]
            if sort in name:
                self._add(kind, place.unit, place.start, place.end)
                place.is_counted = True

    def _allocate(self, event: Event) -> None:
        self._forget(event.address)  # it was freed unseen
        place = self._innermost()
        if not place or place.mark not in _GATHERING:
            self._made.add(event.address)
            return
        held = self._held.get(place.unit)
        if not held or not held.maker:  # one of an earlier step was freed between the steps
            maker = next(outer for outer in self._places if outer.mark in _GATHERING and outer.unit == place.unit)
            held = self._held[place.unit] = _Held(event.seconds, maker)
        held.blocks[event.address] = event.size_bytes
        self._unit_of[event.address] = place.unit

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
        elif (place := self._innermost()) and place.mark in (POST_FORWARD, RESHARD):
            earlier = self._earlier.setdefault(place.unit, Span("gathered", place.unit or ROOT_UNIT, 0.0, 0.0, 0))
            earlier.end_seconds = round(event.seconds, 6)
            earlier.size_bytes -= event.size_bytes

    def _forget(self, address: int) -> None:
        unit = self._unit_of.pop(address, None)
        if unit is not None and unit in self._held:
            self._held[unit].blocks.pop(address, None)
        self._made.discard(address)

    def _settle(self, ended: _Place) -> None:
        """What lives on when the span that gathers a unit has ended is the unit; the rest was for the copying."""
        held = self._held.get(ended.unit)
        if held and held.maker is ended:
            held.size_bytes = sum(held.blocks.values())

    def _innermost(self) -> _Place | None:
        """FSDP2's own span that runs now."""
        return next((place for place in reversed(self._places) if place.mark != _AUTOGRAD), None)
