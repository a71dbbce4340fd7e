"""Of one step on one rank: its units in the model's order, a lane each, with what the records say of every one."""

from dataclasses import dataclass, field
from itertools import accumulate

from ..contract.errors import UsageError
from ..contract.record import RankRecord, StepRow
from ..contract.sharded import MOST_SPANS, ROOT_UNIT, SPAN_KINDS, Shard, Span, UnitRow
from ..lab.runs import Run
from . import labels

MOST_LANES = 10
LONGEST_SECONDS = 1e6  # of a step, which nobody waits for
_FIRST, _LAST = 4, 3  # of the units, where the middle ones share a lane
_NAME_LENGTH = 22


@dataclass
class Lane:
    """A unit, or with several `units` those in the middle of a deep model."""

    units: list[str]
    label: str
    spans: dict[str, list[Span]] = field(default_factory=dict)  # of each unit
    held_bytes: dict[int, int] = field(default_factory=dict)  # of the first unit, by rank
    shards: dict[int, list[Shard]] = field(default_factory=dict)  # by rank; where listed, alike on all of them

    @property
    def bands(self) -> dict[int, tuple[float, float]]:
        """Where each rank's part begins and how much it is, as shares of the whole: those of the largest parameter."""
        largest = {rank: max(shards, key=lambda shard: shard.whole_bytes) for rank, shards in self.shards.items()}
        if largest and all(is_placed(shard) for shard in largest.values()):
            return {rank: (shard.first_row / shard.global_rows, share_of(shard)) for rank, shard in largest.items()}
        held = {rank: max(0, size) for rank, size in self.held_bytes.items()}
        whole, starts = sum(held.values()) or 1, accumulate(held.values(), initial=0)
        return {rank: (start / whole, size / whole) for (rank, size), start in zip(held.items(), starts, strict=False)}

    def of_kind(self, kind: str) -> list[Span]:
        """The spans of a kind, of all units of the lane."""
        return [span for spans in self.spans.values() for span in spans if span.kind == kind]


@dataclass
class StepLanes:
    """What `lanes_of` finds: the step, as `record` has it, and its units' lanes."""

    record: RankRecord
    row: StepRow
    lanes: list[Lane]
    end_seconds: float


def lanes_of(run: Run, step: int | None, rank: int) -> StepLanes:
    """The lanes of a metered step on a rank; of its latest one unless `step` says which.

    Raises `UsageError` for a rank or a step without spans.
    """
    record = next((record for record in run.records if record.rank == rank), None)
    steps = [row for row in (record.steps if record else []) if row.spans and step in (None, row.step)]
    if not steps:
        raise UsageError(labels.NO_SPANS.format(rank, run.id, "" if step is None else f" of step {step}"))
    row = steps[-1]
    spans = [span for span in row.spans[:MOST_SPANS] if _is_sound(span)]
    ends = [span.end_seconds for span in spans]
    ends += [point.seconds for point in row.curve if point.seconds <= LONGEST_SECONDS]
    by_unit: dict[str, list[Span]] = {unit.name: [] for unit in record.units}
    for span in spans:
        by_unit.setdefault(span.unit, []).append(span)
    lanes = _lanes(by_unit, record)
    for lane in lanes:
        held = {other.rank: _unit(other, lane.units[0]) for other in run.records}
        lane.held_bytes = {rank: unit.held_bytes if unit else 0 for rank, unit in held.items()}
        lane.shards = _shards(run.records, record, lane.units[0])
    return StepLanes(record, row, lanes, max([end for end in ends if end > 0], default=1.0))


def _is_sound(span: Span) -> bool:
    times = (span.start_seconds, span.end_seconds)
    return span.kind in SPAN_KINDS and 0 <= times[0] <= times[1] <= LONGEST_SECONDS  # false for nan, too


def _lanes(by_unit: dict[str, list[Span]], record: RankRecord) -> list[Lane]:
    names = list(by_unit)
    short = _short_names(names)
    groups = [[name] for name in names]
    if len(names) > MOST_LANES:
        groups = [*groups[:_FIRST], names[_FIRST:-_LAST], *groups[-_LAST:]]
    lanes = []
    for group in groups:
        label = short[group[0]]
        if len(group) > 1:
            sizes = {(unit.tensors, unit.whole_bytes) for unit in record.units if unit.name in group}
            form = labels.UNITS_ALIKE if len(sizes) == 1 else labels.UNITS_BETWEEN
            label = form.format(len(group), short[group[0]], short[group[-1]].rpartition(".")[2])
        lanes.append(Lane(group, label, {name: by_unit[name] for name in group}))
    return lanes


def _short_names(names: list[str]) -> dict[str, str]:
    """Names without the parts that all but the root begin with, but for the last of these: `layers.0`."""
    parts = {name: name.split(".") for name in names if name != ROOT_UNIT}
    common = 0
    if len(parts) > 1:
        while len({tuple(part[: common + 1]) for part in parts.values()}) == 1 and common < 32:
            common += 1
    short = {name: ".".join(part[max(0, common - 1) :]) for name, part in parts.items()}
    return {name: plain(short.get(name, name)) for name in names}


def plain(text: str, most: int = _NAME_LENGTH) -> str:
    """Text of a record for a figure: what every font has, and no longer than there is room for."""
    text = text.encode("ascii", "replace").decode()
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= most else "…" + text[1 - most :]


def _unit(record: RankRecord, name: str) -> UnitRow | None:
    return next((unit for unit in record.units if unit.name == name), None)


def is_placed(shard: Shard) -> bool:
    """Whether a record says where a shard's rows are, and they can be there."""
    return shard.first_row is not None and 0 <= shard.first_row <= shard.global_rows and shard.global_rows > 0


def share_of(shard: Shard) -> float:
    """A placed shard's rows as a share of all of them."""
    return min(max(shard.rows, 0), shard.global_rows - shard.first_row) / shard.global_rows


def _shards(records: list[RankRecord], shown: RankRecord, name: str) -> dict[int, list[Shard]]:
    """Every rank's shards of a unit; of one that is not listed, those of a unit that is like it."""
    if not (unit := _unit(shown, name)):
        return {}
    alike = next(
        (other for other in (unit, *shown.units) if other.shards and _likeness(other) == _likeness(unit)), None
    )
    if not alike:
        return {}
    found = {record.rank: _unit(record, alike.name) for record in records}
    shards = {rank: other.shards if other else [] for rank, other in found.items()}
    names = [shard.name for shard in alike.shards]
    return shards if all([shard.name for shard in of_rank] == names for of_rank in shards.values()) else {}


def _likeness(unit: UnitRow) -> tuple[int, int]:
    return unit.tensors, unit.whole_bytes
