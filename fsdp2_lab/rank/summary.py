"""What rank 0 prints, for who runs a script by hand."""

from pathlib import Path

from ..contract.record import RankRecord, StepRow
from ..contract.units import format_bytes, format_seconds


def print_step(row: StepRow) -> None:
    loss = "" if row.loss is None else f"  loss {row.loss:.4f}"
    print(f"step {row.step}{loss}  {format_seconds(row.seconds)}", flush=True)


def print_summary(record: RankRecord, run_dir: Path) -> None:
    """Stages, losses and step time of rank 0, and where every rank's record is."""
    print(f"\nrank 0 of {record.world_size} on {record.device}, {record.how}")
    print(f"  {'stage':<16}{'seconds':>10}{'bytes before':>16}{'bytes after':>16}{'peak bytes':>16}")
    for row in record.stages:
        cells = (row.bytes_before, row.bytes_after, row.peak_bytes)
        print(f"  {row.name:<16}{format_seconds(row.seconds):>10}" + "".join(f"{format_bytes(c):>16}" for c in cells))
    timed = sorted(step.seconds for step in record.steps if step.timed)
    if record.steps:
        first, last = record.steps[0], record.steps[-1]
        if last.loss is not None:
            print(f"  loss {first.loss:.4f} at step {first.step}, {last.loss:.4f} at step {last.step}")
        if timed:
            print(f"  median step {format_seconds(timed[len(timed) // 2])} over {len(timed)} timed steps")
    print(f"  records of all ranks: {run_dir}", flush=True)
