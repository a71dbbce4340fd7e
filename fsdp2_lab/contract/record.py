"""The record: what each rank writes and everyone else reads. One JSON file per rank, versioned."""

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import workspace
from .errors import UsageError

SCHEMA = 1

MEASURED_CPU = "measured (CPU)"
MEASURED_CUDA = "measured (CUDA)"


@dataclass
class StageRow:
    """One stage on one rank. Bytes are the torch allocator's; `None` where nothing was metered.

    `reserved_bytes` is what the CUDA caching allocator held at its peak. `rss_bytes` is the process's
    resident memory when the stage ended, `rss_peak_bytes` its highest since the process began.
    """

    name: str
    seconds: float | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None
    peak_bytes: int | None = None
    reserved_bytes: int | None = None
    rss_bytes: int | None = None
    rss_peak_bytes: int | None = None


@dataclass
class StepRow:
    """One training step on one rank. `timed` is false where the memory meter slowed it."""

    step: int
    stage: str | None = None
    loss: float | None = None
    tokens: int | None = None
    seconds: float | None = None
    peak_bytes: int | None = None
    timed: bool = True
    values: dict = field(default_factory=dict)


@dataclass
class RankError:
    """What ended a rank: the exception and where it was raised."""

    rank: int
    type: str
    message: str
    traceback: str
    stage: str | None = None
    unix_seconds: float | None = None
    step: int | None = None


@dataclass
class RankRecord:
    """All that one rank left behind.

    `status` is `running` until the rank says how it ended: `ok` or `failed`; `incomplete` for one that never could.
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
    error: RankError | None = None
    schema: int = SCHEMA


@dataclass
class LaunchRecord:
    """What the launcher itself sees of a run, also of a script that imports nothing of ours.

    `status` is `running`, `ok`, `failed`, `timeout` or `interrupted`. `exit_codes` and `rss_peak_bytes` are
    by rank: a negative code is a signal, `None` a rank that was ended because another failed; resident
    memory is sampled from outside a few times a second. `explanation` is what the launcher makes of a run that
    did not end well, a sentence a line. `cold_because` says why ranks were started and not forked, `None` if forked.
    `threads_per_rank` is OMP_NUM_THREADS, `None` where unknown.
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
    cold_because: str | None = None
    schema: int = SCHEMA


def rank_file(run_dir: Path, rank: int) -> Path:
    return run_dir / f"rank{rank}.json"


def write_record(run_dir: Path, record: RankRecord) -> None:
    """Write a rank's record in one step. Non-finite numbers travel as the strings `nan`, `inf`, `-inf`."""
    workspace.write_json(rank_file(run_dir, record.rank), finite(asdict(record)))


def write_launch(run_dir: Path, launch: LaunchRecord) -> None:
    workspace.write_json(run_dir / "run.json", asdict(launch))


def read_record(path: Path) -> RankRecord:
    """Read one rank's record. Raises `UsageError` for JSON that is broken or of another schema."""

    def build(data: dict) -> RankRecord:
        data["stages"] = [StageRow(**row) for row in data["stages"]]
        data["steps"] = [StepRow(**row) for row in data["steps"]]
        for step in data["steps"]:
            step.loss = None if step.loss is None else float(step.loss)
            step.values = {name: float(value) for name, value in step.values.items()}
        return RankRecord(**data)

    return _read(path, build)


def read_records(run_dir: Path) -> list[RankRecord]:
    """The records of a run in rank order; those of ranks that wrote none are absent."""
    files = [path for path in run_dir.glob("rank*.json") if path.stem.removeprefix("rank").isdecimal()]
    return [read_record(path) for path in sorted(files, key=lambda path: int(path.stem.removeprefix("rank")))]


def read_launch(run_dir: Path) -> LaunchRecord | None:
    """The launcher's part of a run; `None` for a run that plain `torchrun` started."""
    path = run_dir / "run.json"
    return _read(path, lambda data: LaunchRecord(**data)) if path.exists() else None


def _read(path: Path, build):
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] == SCHEMA:
            data["error"] = data["error"] and RankError(**data["error"])
            return build(data)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{path} is not a whole record ({error}). Run the stage again.") from error
    raise UsageError(f"{path} has schema {data['schema']!r}; this version reads {SCHEMA}. Run the stage again.")


def finite(value):
    """A JSON value with `nan`, `inf` and `-inf` as strings, which strict JSON needs and `float()` understands."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
