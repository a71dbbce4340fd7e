"""Who failed first, and how: from the records, torchrun's own report and the ranks' logs."""

import re
import signal
from pathlib import Path

from ..contract.record import RankError, RankRecord

_FAILURE = re.compile(r"^\s*rank\s*:\s*(\d+) .*\n\s*exitcode\s*:\s*(-?\d+) \(pid: (\d+)\)", re.MULTILINE)
_ENDED_BY_TORCHRUN = re.compile(r"Sending process (\d+) closing signal")
_TRACEBACK = "Traceback (most recent call last):"
_LAST_WORDS = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$")
# What the other ranks say when a peer is gone; a cause only if nobody has a better one.
_CONSEQUENCE = re.compile(r"connection (closed|reset|refused)|broken pipe|socket|remote process exited", re.IGNORECASE)


def exit_codes(torchrun_log: Path, ranks: int, agent_code: int | None) -> dict[str, int | None]:
    """Exit code by rank, from torchrun's report; `None` for a rank that was ended because another failed."""
    if agent_code == 0:
        return {str(rank): 0 for rank in range(ranks)}
    codes = {str(rank): None for rank in range(ranks)}
    report = _read(torchrun_log)
    ended = set(_ENDED_BY_TORCHRUN.findall(report))
    for rank, code, pid in _FAILURE.findall(report):
        if pid not in ended or int(code) not in (-signal.SIGTERM, -signal.SIGKILL):
            codes[rank] = int(code)
    return codes


def find_error(records: list[RankRecord], codes: dict[str, int | None], logs: Path) -> RankError | None:
    """The error that came first: of a rank that died without a word, else the earliest one with its own cause."""
    raised = {record.rank: record.error for record in records if record.error}
    silent = [_from_log(int(rank), code, logs) for rank, code in codes.items() if code and int(rank) not in raised]
    errors = sorted(raised.values(), key=lambda error: error.unix_seconds or 0.0)
    causes = [error for error in (*silent, *errors) if not _CONSEQUENCE.search(error.message)]
    return next(iter((*causes, *silent, *errors)), None)


def _from_log(rank: int, code: int, logs: Path) -> RankError:
    if code < 0:
        known = {member.value: member.name for member in signal.Signals}
        name = known.get(-code, f"signal {-code}")
        return RankError(rank, name, f"rank {rank} was ended by {name}", "")
    text = _read(logs / f"rank{rank}.stderr").rstrip()
    lines = text[max(0, text.rfind(_TRACEBACK)) :].splitlines()
    for end, line in enumerate(lines):
        words = _LAST_WORDS.match(line)
        if words and (_TRACEBACK in text or words[1].endswith("Error")):  # a SyntaxError has no traceback
            return RankError(rank, words[1].rpartition(".")[2], words[2] or "", "\n".join(lines[: end + 1]) + "\n")
    return RankError(rank, "SystemExit", f"rank {rank} ended with exit code {code}", text[-2000:])


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
