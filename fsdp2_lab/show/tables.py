"""Tables of runs for the page."""

from collections.abc import Mapping
from statistics import median

import pandas as pd

from ..contract.errors import UsageError
from ..contract.units import format_bytes, format_seconds
from ..lab.runs import Run
from . import labels


def ranks(run: Run) -> pd.DataFrame:
    """Who the ranks are: rank, local rank, world size, process and device."""
    rows = [(r.rank, r.local_rank, r.world_size, r.pid, r.device) for r in run.records]
    return pd.DataFrame(rows, columns=labels.RANKS_COLUMNS).set_index(labels.RANKS_COLUMNS[0])


def noted(run: Run, name: str) -> pd.DataFrame:
    """A dict that every rank noted under `name`: a row for each of its keys, a column for each rank."""
    columns = {labels.RANK.format(rank): pd.Series(values, dtype=object) for rank, values in run.noted(name).items()}
    return pd.DataFrame(columns)


def noted_rows(run: Run, name: str, rank: int = 0) -> pd.DataFrame:
    """A dict of dicts that one rank noted: a row for each name, a column for each quantity."""
    return pd.DataFrame.from_dict(run.noted(name)[rank], orient="index")


def compare_stage(runs: Mapping[str, Run], stage: str | None = None) -> pd.DataFrame:
    """One stage of several runs, a row a run and rank; `stage` is the last of each run unless given."""
    rows = []
    for label, run in runs.items():
        name = stage or run.stage_names[-1]
        for rank, row in enumerate(run.stage(name)):
            numbers = [format_bytes(value) for value in (row.bytes_before, row.bytes_after, row.peak_bytes)]
            rows.append((label, rank, *numbers, format_seconds(row.seconds), format_bytes(row.rss_bytes), run.how))
    return pd.DataFrame(rows, columns=labels.STAGE_COLUMNS).set_index(list(labels.STAGE_COLUMNS[:2]))


def compare_steps(runs: Mapping[str, Run]) -> pd.DataFrame:
    """Training steps of several runs, a row a run: step peaks, the largest over ranks, and median step time."""
    rows = []
    for label, run in runs.items():
        peaks = [format_bytes(value) for value in (run.step0_peak_bytes, run.peak_bytes)]
        rows.append((label, run.ranks, *peaks, format_seconds(run.step_seconds), run.how))
    return pd.DataFrame(rows, columns=labels.STEPS_COLUMNS).set_index(labels.STEPS_COLUMNS[0])


def step_times(runs: Mapping[str, Run]) -> pd.DataFrame:
    """Timed steps of several runs, a row a run: the fastest, the median and the slowest, each as on its slowest rank.

    Raises `UsageError` for a run without timed steps: on a CPU the first two steps are metered instead.
    """
    rows = []
    for label, run in runs.items():
        timed = run.frame.query("stage.notna() and step.notna() and quantity == 'timed' and value == 1")
        seconds = run.frame.query("step.notna() and quantity == 'seconds'").groupby("step")["value"].max()
        seconds = seconds[seconds.index.isin(timed["step"])]
        if seconds.empty:
            raise UsageError(f"Run {label!r} has no timed step; on a CPU the first two of a run are metered instead.")
        told = [format_seconds(value) for value in (seconds.min(), median(seconds), seconds.max())]
        rows.append((label, len(seconds), *told, run.how))
    return pd.DataFrame(rows, columns=labels.TIMED_COLUMNS).set_index(labels.TIMED_COLUMNS[0])
