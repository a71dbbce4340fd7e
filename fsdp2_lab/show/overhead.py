"""What a GPU holds on top of allocated bytes: the O of 16P/N + 2bshL + O, with a name for each part."""

import pandas as pd

from ..contract.errors import UsageError
from ..contract.record import RankRecord
from ..contract.units import MIB
from ..lab.runs import Run
from . import labels


def overhead(run: Run) -> pd.DataFrame:
    """MiB of each rank's GPU by what holds them, a column a rank; the last row is the sum of the others.

    Allocated and cached bytes are those of the stage with the highest peak. What lies outside the allocator is what
    the driver counts as used on the whole GPU, by other processes, too, less what the allocator held at that time.
    Raises `UsageError` for a run whose records have no bytes of a GPU.
    """
    columns = {labels.RANK.format(record.rank): _parts(run, record) for record in run.records}
    if not columns:
        raise UsageError(f"{run.id} keeps no records; a script that opens one tells what its GPU holds.")
    table = pd.DataFrame(columns).rename(index=labels.OVERHEAD_ROWS)
    table.columns.name = f"MiB, {run.how}"
    return table


def _parts(run: Run, record: RankRecord) -> dict[str, float]:
    known = [row for row in record.stages if row.device_used_bytes is not None and row.peak_bytes is not None]
    if not known:
        raise UsageError(
            f"{run.id} is {run.how}: its records have no bytes of a GPU. Launch it where there is one, or see what a "
            "rank of N GPUs would allocate with `fsdp2-lab dryrun --device cuda`."
        )
    top = max(known, key=lambda row: row.peak_bytes)
    outside = [row.device_used_bytes - row.reserved_after_bytes for row in known]
    at_top = outside[known.index(top)]
    parts = {
        "allocated": top.peak_bytes,
        "cached": top.reserved_bytes - top.peak_bytes,
        "context": outside[0],
        "grown": at_top - outside[0],
    }
    parts["used"] = sum(parts.values())
    return {name: round(size / MIB, 1) for name, size in parts.items()}
