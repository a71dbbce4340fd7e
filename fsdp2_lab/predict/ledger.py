"""A ledger of one step's memory: what is allocated and freed in order, cut into segments with their peaks."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple


class Label(NamedTuple):
    """What bytes are for: a term of the prediction, a part of it, and one such tensor's size as formula and bytes."""

    term: str
    part: str
    formula: str
    unit_bytes: int


@dataclass
class Segment:
    """A stretch of a step: what it changes from its start to its peak and to its end, in bytes by label."""

    name: str
    peak_at: str = ""
    to_peak: Counter = field(default_factory=Counter)
    to_end: Counter = field(default_factory=Counter)

    @cached_property
    def peak_delta(self) -> int:
        return sum(self.to_peak.values())

    def renamed(self, name: str) -> "Segment":
        return Segment(name, self.peak_at, self.to_peak, self.to_end)


class Storage:
    """One allocation; it is freed when its last owner lets go."""

    __slots__ = ("label", "owners", "size_bytes")

    def __init__(self, label: Label, size_bytes: int):
        self.label, self.size_bytes, self.owners = label, size_bytes, 1


class Ledger:
    """Takes allocations and frees, and keeps them as segments."""

    def __init__(self):
        self.segments: list[Segment] = []
        self._changes: list[tuple[Label, int, str]] = []
        self.doing = ""  # named in a segment's `peak_at`

    def alloc(self, term: str, part: str, formula: str, size_bytes: int) -> Storage:
        storage = Storage(Label(term, part, formula, size_bytes), size_bytes)
        if size_bytes:
            self._changes.append((storage.label, size_bytes, self.doing))
        return storage

    def share(self, storage: Storage) -> Storage:
        """One more owner of a storage, as a view or a saved tensor is."""
        storage.owners += 1
        return storage

    def release(self, storage: Storage | None) -> None:
        """One owner lets go."""
        if storage is None:
            return
        storage.owners -= 1
        if not storage.owners and storage.size_bytes:
            self._changes.append((storage.label, -storage.size_bytes, self.doing))

    def close(self, name: str) -> None:
        """End a segment: everything since the last one belongs to it."""
        changes, self._changes = self._changes, []
        total = highest = 0
        peak_index = -1
        for index, (_, delta, _) in enumerate(changes):
            total += delta
            if total > highest:
                highest, peak_index = total, index
        segment = Segment(name, changes[peak_index][2] if peak_index >= 0 else "")
        for index, (label, delta, _) in enumerate(changes):
            segment.to_end[label] += delta
            if index <= peak_index:
                segment.to_peak[label] += delta
        self.segments.append(segment)
