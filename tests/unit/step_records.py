"""Fabricated records of a sharded model's step: the shape of what ranks write, at any depth and number of ranks."""

from pathlib import Path

from fsdp2_lab.contract.record import Point, RankRecord, StepRow, write_record
from fsdp2_lab.contract.sharded import Shard, Span, UnitRow
from fsdp2_lab.lab.runs import Run

MIB = 2**20
ROWS = {"weight": 64, "bias": 3}


def units(count: int, rank: int, ranks: int) -> list[UnitRow]:
    """The root and `count - 1` blocks of two parameters each, cut as torch.chunk cuts."""
    found = []
    for name in ["root", *(f"model.layers.{layer}" for layer in range(count - 1))]:
        shards = []
        for parameter, rows in ROWS.items():
            chunk = -(-rows // ranks)
            first = min(rank * chunk, rows)
            shards.append(Shard(f"{name}.{parameter}", first, min(chunk, rows - first), rows, rows * MIB))
        held = sum(shard.rows * MIB for shard in shards)
        found.append(UnitRow(name, len(ROWS), sum(ROWS.values()) * MIB, held, shards))
    return found


def spans(names: list[str], whole_bytes: int, reshard: bool = True) -> list[Span]:
    """Forward down the units and backward up again, a second each; the root is held throughout each of them."""
    root, *blocks = names
    last = float(len(blocks) + 1)
    found = [Span("all_gather", root, 0.0, 0.5), Span("gathered", root, 0.5, 2 * last + 0.5, whole_bytes)]
    for place, name in enumerate(blocks, 1):
        again = 2 * last - place
        found.append(Span("all_gather", name, place, place + 0.4))
        found.append(Span("gathered", name, place + 0.4, place + 1.0 if reshard else again + 0.8, whole_bytes))
        if reshard:
            found.append(Span("all_gather", name, again - 0.9, again - 0.7))
            found.append(Span("gathered", name, again, again + 0.8, whole_bytes))
        found.append(Span("reduce_scatter", name, again + 0.8, again + 1.0))
    found.append(Span("reduce_scatter", root, 2 * last + 0.5, 2 * last + 1.0))
    return sorted(found, key=lambda span: span.start_seconds)


def step_row(names: list[str], whole_bytes: int = 67 * MIB, step: int = 1, **changes) -> StepRow:
    """A metered step of these units with its phases and its curve."""
    last = float(len(names))
    phases = {"forward": 0.0, "loss": last, "backward": last + 0.1, "optimizer": 2 * last + 1.2}
    curve = [Point(second / 2, (10 + second % 7) * MIB) for second in range(int(4 * last) + 4)]
    values = dict(step=step, stage="train", timed=False, phases=phases, curve=curve, peak_bytes=16 * MIB)
    return StepRow(**(values | {"spans": spans(names, whole_bytes)} | changes))


def sharded_run(folder: Path, ranks: int = 2, count: int = 5, **changes) -> Run:
    """A run of a model with `count` units, as its ranks would have recorded it; `changes` are of the step's row."""
    for rank in range(ranks):
        mine = units(count, rank, ranks)
        row = step_row([unit.name for unit in mine], **changes)
        record = RankRecord(rank, ranks, rank, "here", 1, "cpu", "measured (CPU)", 0.0, {}, [], {}, "ok", [], [row])
        record.units = mine
        write_record(folder, record)
    return Run(folder)
