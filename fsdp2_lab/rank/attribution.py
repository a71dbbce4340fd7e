"""What a step's bytes are for: every allocation of a metered step by its purpose, at the peak and along the step.

FSDP2 names what it does in spans for the profiler, so that an allocation inside one is told by its name. What
parameters, gradients and states are, the optimizer's own hooks say.
"""

from dataclasses import dataclass, field

from ..contract.record import Point
from ..contract.terms import in_order
from .allocator import Event, Lap, Operation
from .fsdp_names import ALL_GATHER, COPY_OUT, POST_FORWARD, PRE_BACKWARD, PRE_FORWARD, REDUCE, mark_of
from .owners import Owners

_OWNED = ("sharded_parameters", "sharded_gradients", "optimizer")
_TINY_BYTES = 64 * 1024
POINTS = 160  # of a curve, at the most

# Spans by the kind of what is allocated inside.
_KINDS = {ALL_GATHER: "all_gather", COPY_OUT: "unsharded_parameters", REDUCE: "reduce_scatter"}
_MARKS = (PRE_FORWARD, POST_FORWARD, PRE_BACKWARD, REDUCE)
_AFTER = {"backward": "after backward", "optimizer": "after the optimizer"}
_OPTIMIZER = "Optimizer.step#"
_COLLECTIVES = (ALL_GATHER, REDUCE, "c10d::")


@dataclass
class StepBytes:
    """Bytes of one step: `terms` at its peak by kind, `curve` along it, and when each of its `phases` began."""

    terms: dict[str, int] = field(default_factory=dict)
    curve: list[Point] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)  # name → seconds from the step's beginning


@dataclass(slots=True)
class _Block:
    size_bytes: int
    kind: str
    is_buffer: bool = False  # of a collective: a thread of its process group may free it unseen


class Attribution:
    """Goes through one step after another; what is alive at the end of one is known at the beginning of the next."""

    def __init__(self):
        self._alive: dict[int, _Block] = {}

    def of(self, lap: Lap, owners: Owners) -> StepBytes:
        """The bytes of the step that `lap` holds the events of, and whose optimizers `owners` watched."""
        walk = _Walk(lap, owners, _known_before(lap, owners, self._alive))
        walk.run()
        self._alive = walk.alive
        return StepBytes(in_order(walk.terms), _thinned(walk.curve), walk.phases)


def _known_before(lap: Lap, owners: Owners, alive: dict[int, _Block]) -> dict[int, _Block]:
    """What lived before the step: what the last one left, and what the optimizer knows and this one did not make."""
    made = {event.address for event in lap.events if event.size_bytes > 0}
    owned = {
        address: _Block(size_bytes, kind)
        for address, (kind, size_bytes) in (owners.before | owners.after).items()
        if address not in made
    }
    known = owned | alive
    is_stale = sum(block.size_bytes for block in known.values()) > lap.bytes_before  # some went between the steps
    return owned if is_stale else known


class _Walk:
    """Through the events of one step."""

    def __init__(self, lap: Lap, owners: Owners, alive: dict[int, _Block]):
        self.alive, self.terms = alive, {}
        self.curve, self.phases = [Point(0.0, lap.bytes_before)], {"forward": 0.0}
        self._lap, self._owners = lap, owners
        self._alive_bytes = sum(block.size_bytes for block in alive.values())
        self._unknown_bytes = lap.bytes_before - self._alive_bytes
        self._phase, self._since = "forward", None  # since when something else runs than the phase
        self._supposed_freed: dict[int, _Block] = {}
        self._in_block = False
        self._logits_bytes = max(
            (e.size_bytes for e in lap.events if _is_within(e.operation, "log_softmax")), default=0
        )

    def run(self) -> None:
        at_peak, rest = list(self.alive.values()), self._unknown_bytes
        peak_bytes = max((event.total_bytes for event in self._lap.events), default=0)
        is_found = peak_bytes <= self._lap.bytes_before
        for event in self._lap.events:
            if event.begins:
                self._enter(event)
                continue
            self._count(event)
            if event.total_bytes == peak_bytes and not is_found:
                at_peak, rest, is_found = list(self.alive.values()), peak_bytes - self._alive_bytes, True
        if self._since and self._phase in _AFTER:
            self.phases.setdefault(_AFTER[self._phase], self._since)
        self._label(self._owners.after)
        self.terms = {"other": rest}
        for block in at_peak:
            self.terms[block.kind] = self.terms.get(block.kind, 0) + block.size_bytes

    def _enter(self, event: Event) -> None:
        name = event.operation.name
        if name.startswith(_OPTIMIZER):
            self._begin("optimizer", event)
            self._label(self._owners.before)
        elif (found := mark_of(name)) and found[0] in _MARKS:
            mark, module = found
            self._in_block = bool(module) and mark != POST_FORWARD
            if mark == PRE_FORWARD and self._phase not in ("forward", "backward"):
                self._begin("forward", event)
            elif mark == POST_FORWARD and not module and self._phase == "forward":
                self._begin("loss", event)
        elif event.operation.is_backward:
            self._begin("backward", event)
        elif event.operation.inside is None and self._phase in _AFTER:
            self._since = self._since or event.seconds  # unless backward goes on, as it does after its hooks

    def _begin(self, phase: str, event: Event) -> None:
        if phase != self._phase and self._since and self._phase in _AFTER:
            self.phases.setdefault(_AFTER[self._phase], self._since)
        self._phase, self._since = phase, None
        self.phases.setdefault(phase, event.seconds)

    def _label(self, owned: dict[int, tuple[str, int]]) -> None:
        for address, (kind, _) in owned.items():
            if block := self.alive.get(address):
                block.kind = kind

    def _count(self, event: Event) -> None:
        before = self._remove(event.address)
        if event.size_bytes > 0:
            if before:  # it was freed unseen, not the buffer that was supposed to be
                self._restore(before.size_bytes)
            is_buffer = any(_is_within(event.operation, name) for name in _COLLECTIVES)
            self._add(event.address, _Block(event.size_bytes, self._kind(event), is_buffer))
        elif not before and not self._remove_like(event.address):
            self._unknown_bytes += event.size_bytes
            if self._unknown_bytes < 0:  # it was known under the name of a buffer that had gone before
                self._unknown_bytes += self._remove_surplus(-self._unknown_bytes)
        self._remove_surplus(self._alive_bytes + self._unknown_bytes - event.total_bytes)
        self.curve.append(Point(event.seconds, event.total_bytes))

    def _add(self, address: int, block: _Block) -> None:
        self.alive[address] = block
        self._alive_bytes += block.size_bytes

    def _remove(self, address: int) -> _Block | None:
        if block := self.alive.pop(address, None):
            self._alive_bytes -= block.size_bytes
        return block

    def _remove_surplus(self, surplus_bytes: int) -> int:
        """A thread of the process group has freed buffers, which no event told: suppose those that make up the surplus.

        Where two have a size, which of them is told later, when the other is freed or its place is taken. Returns
        the bytes of those removed.
        """
        if surplus_bytes <= 0:
            return 0
        removed_bytes = 0
        for address in self._freed_unseen(surplus_bytes):
            if surplus_bytes > 0:
                self._supposed_freed[address] = block = self._remove(address)
                surplus_bytes -= block.size_bytes
                removed_bytes += block.size_bytes
        return removed_bytes

    def _freed_unseen(self, surplus_bytes: int) -> list[int]:
        """Addresses of what makes up a surplus: a buffer of its size, or else whatever a collective was given."""
        candidates = self._candidates()
        if exact := [address for address, size_bytes, _ in candidates if size_bytes == surplus_bytes]:
            return exact[:1]
        buffers = [(address, size_bytes) for address, size_bytes, is_buffer in candidates if is_buffer]
        if smaller := [address for address, size_bytes in buffers if size_bytes < surplus_bytes]:
            return smaller
        if surplus_bytes > _TINY_BYTES and buffers:  # the thread made something less of its own, too
            return [min(buffers, key=lambda found: found[1])[0]]
        return []

    def _candidates(self) -> list[tuple[int, int, bool]]:
        """What a thread may have freed, the likeliest first: address, bytes, whether a collective made it."""
        found = [(a, b.size_bytes, b.is_buffer) for a, b in self.alive.items() if b.kind not in _OWNED]
        return sorted(found, key=lambda candidate: not candidate[2])

    def _restore(self, size_bytes: int) -> None:
        sizes = {block.size_bytes: address for address, block in self._supposed_freed.items()}
        if (address := sizes.get(size_bytes)) and address not in self.alive:
            self._add(address, self._supposed_freed.pop(address))

    def _remove_like(self, address: int) -> _Block | None:
        """What is freed here was supposed to be gone, so something else of its size is: forget that."""
        if not (block := self._supposed_freed.pop(address, None)):
            return None
        return self._remove(next((a for a, size, _ in self._candidates() if size == block.size_bytes), 0))

    def _kind(self, event: Event) -> str:
        is_recorded = is_backward = False
        operation = event.operation
        while operation:
            if operation.name.startswith(_OPTIMIZER):
                return "temporaries"
            if (found := mark_of(operation.name)) and found[0] in _KINDS:
                return _KINDS[found[0]]
            if operation.name.startswith(_COLLECTIVES[-1]):  # of the script's own
                return "all_gather" if "gather" in operation.name else "reduce_scatter"
            is_recorded |= operation.is_recorded and not is_backward  # what backward computes again records, too
            is_backward |= operation.is_backward
            operation = operation.inside
        if self._is_logits(event):
            return "logits"
        computes = self._phase in ("forward", "loss") or (is_recorded and self._phase == "backward")
        return "activations" if computes else "temporaries"

    def _is_logits(self, event: Event) -> bool:
        """Whether it has the size of the logits in one of their dtypes, outside the blocks, and is no weight's."""
        sizes = (self._logits_bytes // 2, self._logits_bytes, 2 * self._logits_bytes)
        is_gradient_of_weight = self._phase == "backward" and _is_within(event.operation, "aten::mm")
        return event.size_bytes in sizes and not self._in_block and not is_gradient_of_weight


def _is_within(operation: Operation | None, name: str) -> bool:
    while operation:
        if name in operation.name:
            return True
        operation = operation.inside
    return False


def _thinned(curve: list[Point]) -> list[Point]:
    """At the most `POINTS` of them: the highest of every stretch of time."""
    end = curve[-1].seconds or 1.0
    highest: dict[int, Point] = {}
    for point in curve:
        stretch = min(POINTS - 1, int(POINTS * point.seconds / end))
        if stretch not in highest or point.live_bytes > highest[stretch].live_bytes:
            highest[stretch] = point
    return list(highest.values())
