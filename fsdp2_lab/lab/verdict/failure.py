"""Why a run did not end well, as a person reads it: the cause first, the others folded, then where to look."""

import os

from ...contract.record import RankError
from .diagnosis import LEFT_EARLY, waited_too_long

_MOST_CHARACTERS = 12_000


def failure_text(run) -> str:
    """The cause, what followed from it, and the places of logs and run, and the command to repeat it."""
    explanation = run.launch.explanation if run.launch else []
    lines = []
    if run.status == "interrupted":
        lines.append("Interrupted, so every rank was ended.")
    elif run.status == "timeout":
        lines.append(f"No end after {run.launch.timeout_seconds:g} s, so every rank was ended.")
    if run.error and waited_too_long(run.error):  # who gave up waiting is not who is to blame
        lines += [*explanation, f"rank {run.error.rank} of {run.ranks} gave up first{_where(run.error)}."]
        lines.append(_short(run.error.traceback))
    elif run.error:
        lines += [*_cause(run.error, run.ranks), *explanation]
    else:
        lines += explanation
    lines += run.launch.consequences if run.launch else []
    if dumps := sorted((run.dir / "logs").glob("nccl_trace_rank_*")):
        lines.append(f"flight recorder: {os.path.relpath(dumps[0].parent)}/nccl_trace_rank_*")
    lines += [f"logs:    {run.dir / 'logs'}", f"run:     {run.dir}", f"again:   {run.command}"]
    return "\n".join(lines)


def _cause(error: RankError, ranks: int) -> list[str]:
    who = f"rank {error.rank} of {ranks}"
    where = _where(error)
    if error.rank < 0:
        return [f"{error.message}.", _short(error.traceback)]
    if error.type.startswith(("SIG", "signal")):
        return [f"{who} was ended by {error.type} first{where}."]
    if error.type == LEFT_EARLY:
        return [f"{who} left early{where}: {error.message}."]
    if error.type == "SystemExit":
        last = [f"Its last words (stderr):\n{error.traceback}"] if error.traceback else []
        return [f"{who} failed first{where}: {error.message}.", *last]
    # A mistake of the reader's own needs no traceback of ours.
    own_words = error.type == "UsageError" or not error.traceback
    return [f"{who} failed first{where}.", _short(error.message if own_words else error.traceback)]


def _short(text: str) -> str:
    # A message can be megabytes; its beginning says what, its end where.
    text = text.strip()
    left_out = len(text) - _MOST_CHARACTERS
    if left_out <= 0:
        return text
    half = _MOST_CHARACTERS // 2
    return f"{text[:half]}\n… {left_out} characters left out …\n{text[-half:]}"


def _where(error: RankError) -> str:
    stage = f", in stage {error.stage}" if error.stage else ""
    return stage + (f", step {error.step}" if error.step is not None else "")
