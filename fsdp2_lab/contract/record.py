"""The record: what each rank writes and everyone else reads. One JSON file per rank, versioned."""

import json
import math
import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import workspace
from .errors import UsageError
from .secrets import redact_json, split_command
from .sharded import Span, UnitRow
from .units import MIB
from .untrusted import MOST_BYTES, build, parse_json, read_text

SCHEMA = 1
RANK_STATUSES = ("running", "ok", "failed", "incomplete")
LAUNCH_STATUSES = ("running", "ok", "failed", "timeout", "interrupted")

MEASURED_CPU = "measured (CPU)"
MEASURED_CUDA = "measured (CUDA)"


@dataclass
class StageRow:
    """One stage on one rank. Bytes are the torch allocator's; `None` where nothing was metered.

    `reserved_bytes` is what the CUDA caching allocator held at its peak, `reserved_after_bytes` when the stage ended;
    `device_used_bytes` what the driver counted then as used on the whole GPU, by whomever. `rss_bytes` is the
    process's resident memory when the stage ended, `rss_peak_bytes` its highest since the process began.
    """

    name: str
    seconds: float | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None
    peak_bytes: int | None = None
    reserved_bytes: int | None = None
    rss_bytes: int | None = None
    rss_peak_bytes: int | None = None
    reserved_after_bytes: int | None = None
    device_used_bytes: int | None = None


@dataclass
class Point:
    """The allocator's live bytes at one moment of a step."""

    seconds: float
    live_bytes: int


@dataclass
class StepRow:
    """One training step on one rank. `timed` is false where the memory meter slowed it.

    A metered step has `terms`, the bytes at its peak by what they are for (`contract/terms.py`), which add up to
    `peak_bytes`; a `curve` of live bytes; `phases`, name to the seconds at which each began; and the `spans` of
    FSDP2's units, in the order in which they began, none where nothing is sharded.
    """

    step: int
    stage: str | None = None
    loss: float | None = None
    tokens: int | None = None
    seconds: float | None = None
    peak_bytes: int | None = None
    timed: bool = True
    values: dict[str, float] = field(default_factory=dict)
    terms: dict[str, int] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    curve: list[Point] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)


@dataclass
class RankError:
    """What ended a rank: the exception and where it was raised.

    `monotonic_seconds` orders the errors of one machine, whatever is done to its clock meanwhile.
    """

    rank: int
    type: str
    message: str
    traceback: str
    stage: str | None = None
    unix_seconds: float | None = None
    step: int | None = None
    monotonic_seconds: float | None = None


@dataclass
class RankRecord:
    """All that one rank left behind.

    `status` is `running` until the rank says how it ended: `ok` or `failed`; `incomplete` for one that never could.
    `units` are those of the sharded model that its latest metered step called, in the model's order.
    """

    rank: int
    world_size: int
    local_rank: int
    host: str
    pid: int
    device: str
    how: str
    started_unix_seconds: float
    versions: dict
    argv: list[str]
    settings: dict
    status: str = "running"
    stages: list[StageRow] = field(default_factory=list)
    steps: list[StepRow] = field(default_factory=list)
    values: dict = field(default_factory=dict)
    units: list[UnitRow] = field(default_factory=list)
    error: RankError | None = None
    schema: int = SCHEMA


@dataclass
class LaunchRecord:
    """What the launcher itself sees of a run, also of a script that imports nothing of ours.

    `status` is `running`, `ok`, `failed`, `timeout` or `interrupted`. `exit_codes` and `rss_peak_bytes` are
    by rank: a negative code is a signal, `None` a rank that was ended because another failed; resident
    memory is sampled from outside a few times a second. `explanation` is what the launcher makes of a run that
    did not end well, a sentence a line; `consequences` are the failures that followed from the first.
    `cold_because` says why ranks were started and not forked, `None` if forked; `threads_per_rank` is
    OMP_NUM_THREADS, `None` where unknown.
    """

    id: str
    script: str
    ranks: int
    how: str
    command: str
    started_unix_seconds: float
    timeout_seconds: float
    threads_per_rank: int | None = None
    status: str = "running"
    seconds: float | None = None
    exit_codes: dict[str, int | None] = field(default_factory=dict)
    rss_peak_bytes: dict[str, int] = field(default_factory=dict)
    error: RankError | None = None
    explanation: list[str] = field(default_factory=list)
    consequences: list[str] = field(default_factory=list)
    cold_because: str | None = None
    schema: int = SCHEMA


def rank_file(run_dir: Path, rank: int) -> Path:
    return run_dir / f"rank{rank}.json"


def write_record(run_dir: Path, record: RankRecord) -> None:
    """Write a rank's record in one step, without secrets. Non-finite numbers travel as `nan`, `inf`, `-inf`.

    Raises `UsageError` where it cannot be written, or is more than a reader would take.
    """
    text = json.dumps(finite(redact_json(asdict(record), record.argv)), allow_nan=False)
    if len(text) > MOST_BYTES:
        raise UsageError(f"The record of rank {record.rank} is over {MOST_BYTES // MIB} MiB: note less in it.")
    workspace.write_text(rank_file(run_dir, record.rank), text + "\n")


def write_launch(run_dir: Path, launch: LaunchRecord) -> None:
    """Write the launcher's record in one step, without secrets. Raises `UsageError` where it cannot be written."""
    workspace.write_json(run_dir / "run.json", redact_json(finite(asdict(launch)), split_command(launch.command)))


def read_record(path: Path) -> RankRecord:
    """Read one rank's record, which anybody may have written.

    Raises `UsageError` for what is no whole record of this schema, or another rank's.
    """
    record = _read(path, RankRecord, RANK_STATUSES)
    if path.name != f"rank{record.rank}.json" or not 0 <= record.rank < record.world_size:
        raise _not_whole(path, f"it says rank {record.rank} of {record.world_size}")
    return record


def read_records(run_dir: Path) -> list[RankRecord]:
    """The records of a run in rank order; those of ranks that wrote none are absent."""
    found = {path: re.fullmatch(r"rank([0-9]+)\.json", path.name) for path in run_dir.glob("rank*.json")}
    ranks = {path: int(match[1]) for path, match in found.items() if match}
    return [read_record(path) for path in sorted(ranks, key=ranks.get)]


def read_launch(run_dir: Path) -> LaunchRecord | None:
    """The launcher's part of a run; `None` for a run that plain `torchrun` started."""
    path = run_dir / "run.json"
    return _read(path, LaunchRecord, LAUNCH_STATUSES) if os.path.lexists(path) else None


def _read(path: Path, kind: type, statuses: tuple[str, ...]):
    try:
        data = parse_json(read_text(path))
        schema = data.get("schema") if isinstance(data, dict) else None
        if type(schema) is int and schema < SCHEMA:
            raise UsageError(f"{path} was written by an earlier version (schema {schema}); run the stage again.")
        if type(schema) is int and schema > SCHEMA:
            raise UsageError(f"{path} was written by a newer version (schema {schema}); upgrade fsdp2-lab.")
        if schema != SCHEMA or isinstance(schema, bool):
            raise ValueError(f"its schema is {schema!r:.40}")
        record = build(kind, data)
        if record.status not in statuses:
            raise ValueError(f"its status is {record.status!r:.40}")
    except (OSError, ValueError, RecursionError) as error:
        raise _not_whole(path, getattr(error, "strerror", None) or str(error)) from error
    return record


def _not_whole(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} is not a whole record ({' '.join(why.split()):.200}); run the stage again.")


def finite(value):
    """A JSON value with `nan`, `inf` and `-inf` as strings, which strict JSON needs and `float()` understands."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
