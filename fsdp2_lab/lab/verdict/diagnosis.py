"""Who failed first, and how: from what ranks recorded, their last words, and how torchrun's agent saw them end."""

import re
import signal
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from ...contract.places import STAND_SIGNAL, Exit, Place
from ...contract.record import RankError, RankRecord
from ...contract.untrusted import read_end
from .evidence import signal_name

# What the other ranks say when a peer is gone; a cause only if nobody has a better one.
_CONSEQUENCE = re.compile(
    r"connection (closed|reset|refused)|broken pipe|socket|remote process exited|nccl communicator was aborted"
    r"|unhandled system error",
    re.IGNORECASE,
)
_OF_A_GROUP = re.compile(r"gloo|nccl|process ?group|c10d|tcpstore|(recv|send) operation to complete", re.IGNORECASE)
_IN_TORCH_DISTRIBUTED = re.compile(r"torch[/\\]distributed[/\\]")
_WAITED = re.compile(r"timed? ?out|collective operation timeout", re.IGNORECASE)
_NOTICE_SECONDS = 0.5  # until the agent sees a rank's silent death; its peers may raise before
_LAST_LINES_BYTES = 2000
_ASKED_CODES = (-signal.SIGTERM, -signal.SIGKILL, -STAND_SIGNAL)  # the last, where a rank was ending already

LEFT_EARLY = "LeftEarly"


def exit_codes(exits: dict[str, Exit], ranks: int, agent_code: int | None) -> dict[str, int | None]:
    """Exit code by rank; `None` for a rank that was ended because another failed, or that nobody saw end."""
    if agent_code == 0:
        return {str(rank): 0 for rank in range(ranks)}
    # A rank that was leaving by itself when the agent asked has its own code.
    seen = {rank: each.code for rank, each in exits.items() if not (each.asked and each.code in _ASKED_CODES)}
    return {str(rank): seen.get(str(rank)) for rank in range(ranks)}


def find_errors(
    records: dict[int, RankRecord], places: dict[int, Place], exits: dict[str, Exit], logs: Path
) -> list[RankError]:
    """The error of each rank that failed by itself, the likeliest cause first.

    A cause comes before what follows from a peer's end, and the earlier before the later.
    """
    errors = {rank: record.error for rank, record in records.items() if record.error}
    for rank, place in places.items():
        if place.error and rank not in errors:
            errors[rank] = place.error
    for key, each in exits.items():
        if int(key) not in errors and each.code != 0 and not each.asked:
            errors[int(key)] = _silent(int(key), each, records.get(int(key)), logs)
    return sorted(errors.values(), key=lambda error: (is_consequence(error), error.monotonic_seconds or 0.0))


def is_consequence(error: RankError) -> bool:
    """Whether an error tells of another rank's end, or of waiting for it, and not of a fault of its own."""
    return _of_a_group(error) and bool(_CONSEQUENCE.search(error.message) or _WAITED.search(error.message))


def waited_too_long(error: RankError) -> bool:
    """Whether an error is a process group's timeout: this rank waited, and another is to blame."""
    return _of_a_group(error) and bool(_WAITED.search(error.message))


def _of_a_group(error: RankError) -> bool:
    # A data loader or a download that loses its connection or waits too long is a fault of this rank alone.
    if error.type.startswith("Dist"):
        return True
    return error.type == "RuntimeError" and bool(
        _OF_A_GROUP.search(error.message) or _IN_TORCH_DISTRIBUTED.search(error.traceback)
    )


def left_early(
    records: dict[int, RankRecord],
    exits: dict[str, Exit],
    consequences: list[RankError],
    finished: Collection[int] = (),
) -> list[RankError]:
    """Ranks that ended with exit code 0 before the others, or without closing their record.

    Those in `finished` came to the last line of the script: the others may go on, unless they lost a peer by it.
    `consequences` are errors of ranks that lost their peers: whoever ended well by itself had left them.
    """
    reached = max((len(record.stages) for record in records.values()), default=0)
    steps = max((len(record.steps) for record in records.values()), default=0)
    left = []
    for rank in sorted(int(rank) for rank, each in exits.items() if each.code == 0):
        record = records.get(rank)
        if record and record.status == "running":
            message = "it ended with exit code 0 and without closing its record, as os._exit(0) does"
        elif consequences or (
            rank not in finished and record and (len(record.stages) < reached or len(record.steps) < steps)
        ):
            message = "it ended with exit code 0 while other ranks went on, as sys.exit(0) on one rank does"
        else:
            continue
        left.append(RankError(rank, LEFT_EARLY, message, "", record and _stage(record)))
    return left


def last_lines(path: Path, size: int = _LAST_LINES_BYTES) -> str:
    """The end of a log as text, whatever bytes it holds and however long it is; empty where there is none."""
    try:
        return read_end(path, size)[1].decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _silent(rank: int, each: Exit, record: RankRecord | None, logs: Path) -> RankError:
    if each.code < 0:
        name = signal_name(-each.code)
        error = RankError(rank, name, f"rank {rank} was ended by {name}", "")
    else:
        said = last_lines(logs / f"rank{rank}.stderr")
        error = RankError(rank, "SystemExit", f"rank {rank} ended with exit code {each.code}", said)
    seen = each.monotonic_seconds - _NOTICE_SECONDS
    return replace(error, stage=record and _stage(record), monotonic_seconds=seen)


def _stage(record: RankRecord) -> str | None:
    return record.stages[-1].name if record.stages else None
