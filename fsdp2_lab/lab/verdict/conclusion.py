"""What a run has come to, once every process of it is gone: logs in place, records marked, the cause found."""

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from ...contract.errors import UsageError
from ...contract.places import Place, exits_file, place_file, read_exits, read_place, read_stack, stack_file
from ...contract.record import LaunchRecord, RankError, RankRecord, rank_file, read_record, write_launch, write_record
from .diagnosis import exit_codes, find_errors, is_consequence, last_lines, left_early, waited_too_long
from .evidence import likely_cause, signal_name
from .hang import explain

_TORCHRUN_BYTES = 4000
_BRIEF_CHARACTERS = 300
_FULL_BYTES = 2**16


def conclude(
    launch: LaunchRecord,
    run_dir: Path,
    status: str,
    code: int | None,
    seconds: float,
    rss_peak_bytes: dict[str, int],
    oom_kills_before: int | None,
) -> None:
    """Complete and write the launch's record. `code` is the agent's exit code, `None` where it was ended.

    A record that cannot be written leaves `launch` complete all the same, with a line that says so.
    """
    logs = run_dir / "logs"
    with suppress(OSError):  # of a folder that somebody has removed, or a full disk
        _flatten(logs)
    launch.rss_peak_bytes = dict(sorted(rss_peak_bytes.items()))
    launch.seconds = seconds
    exits = read_exits(logs)
    launch.exit_codes = exit_codes(exits, launch.ranks, code)
    records, unreadable = _records(run_dir, launch.ranks)
    places = {rank: place for rank in range(launch.ranks) if (place := read_place(logs, rank))}
    told = {rank: place for rank, place in places.items() if place.unix_seconds or _add_stack(place, logs, records)}
    errors = find_errors(records, places, exits, logs)
    if status in ("ok", "failed") and (not errors or is_consequence(errors[0])):
        early = left_early(records, exits, errors, {rank for rank, place in places.items() if place.finished})
        # A rank that others waited for in vain did not fail: the one that left did.
        errors = [*early, *errors] if early else errors
        status = "failed" if early else status
    elif status == "ok":
        status = "failed"  # a rank says so, whatever its exit code
    launch.status = status
    if records:
        launch.how = next(iter(records.values())).how
    if status == "failed":
        launch.error = errors[0] if errors else _torchrun_error(logs, code)
        if launch.error.type.startswith("SIG"):
            launch.explanation += [likely_cause(launch.error.type, launch.error.rank, rss_peak_bytes, oom_kills_before)]
        elif waited_too_long(launch.error):
            launch.explanation += explain(told, launch.ranks)
        launch.consequences = [f"rank {error.rank} then failed: {_brief(error)}" for error in errors[1:]]
    elif status == "timeout":
        launch.explanation += explain(told, launch.ranks) or ["No rank has said where it stood."]
    if status != "ok" and _is_full(run_dir):
        launch.explanation.append(f"No space left for {run_dir}: what ranks recorded and printed may be missing.")
    launch.explanation += unreadable
    _mark(run_dir, launch, records)
    with suppress(OSError):
        _tidy(logs, launch.ranks)
    try:
        write_launch(run_dir, launch)
    except UsageError as error:
        launch.explanation.append(str(error))


def _add_stack(place: Place, logs: Path, records: dict[int, RankRecord]) -> bool:
    # While C code holds Python's lock, only the signal's handler can tell where a rank stands.
    place.frames = read_stack(logs, place.rank)
    if place.frames and (record := records.get(place.rank)) and record.stages:
        place.stage = record.stages[-1].name
    place.silent = bool(place.frames)
    return place.silent


def _records(run_dir: Path, ranks: int) -> tuple[dict[int, RankRecord], list[str]]:
    records, unreadable = {}, []
    for rank in range(ranks):
        if os.path.lexists(path := rank_file(run_dir, rank)):
            try:
                records[rank] = read_record(path)
            except UsageError as error:
                unreadable.append(str(error))
    return records, unreadable


def _mark(run_dir: Path, launch: LaunchRecord, records: dict[int, RankRecord]) -> None:
    for rank, record in records.items():
        before = record.status
        if record.status == "running":
            record.status = "incomplete"
        # A rank cannot see its own exit code: after sys.exit(3) its record still says ok.
        elif record.status == "ok" and launch.exit_codes[str(rank)]:
            record.status = "failed"
        if record.status != before:
            with suppress(UsageError):
                write_record(run_dir, record)


def _torchrun_error(logs: Path, code: int | None) -> RankError:
    said = last_lines(logs / "torchrun.log", _TORCHRUN_BYTES)
    how = f"was ended by {signal_name(-code)}" if code is not None and code < 0 else "failed before any rank did"
    return RankError(-1, "torchrun", f"torchrun {how}", said)


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _FULL_BYTES
    except OSError:
        return False


def _brief(error: RankError) -> str:
    # Gloo begins with a place in its own source and ends with advice.
    line = next(iter(error.message.strip().splitlines()), "")
    line = re.sub(r"^\[[^]]*:\d+\] ", "", line).partition(". ")[0][:_BRIEF_CHARACTERS]
    return f"{error.type}: {line}" if line else error.type


def _flatten(logs: Path) -> None:
    # torchrun leaves logs/RUN/attempt_0/RANK/stdout.log; a person looks for logs/rank0.stdout.
    for file in logs.glob("*/attempt_0/*/std*.log"):
        file.rename(logs / f"rank{file.parent.name}.{file.stem}")
    for folder in logs.glob("*/"):
        shutil.rmtree(folder)


def _tidy(logs: Path, ranks: int) -> None:
    exits_file(logs).unlink(missing_ok=True)
    for rank in range(ranks):
        place_file(logs, rank).unlink(missing_ok=True)
        stack = stack_file(logs, rank)
        if stack.exists() and not stack.stat().st_size:
            stack.unlink()
