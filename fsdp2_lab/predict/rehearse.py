"""The rehearsal: one real process and device plays rank 0 of N, so its allocator's peaks are an N-rank job's."""

import tempfile
from pathlib import Path

from ..contract import workspace
from ..contract.errors import UsageError
from ..contract.record import MEASURED_CUDA, read_records
from ..contract.settings import to_argv
from ..contract.workspace import RUN_DIR_VARIABLE
from .prediction import Prediction
from .process import TIMEOUT_SECONDS, check_request, play

CANNOT_SHOW = "not in it: the communication library's own buffers, overlap and speed, and numbers that mean anything"


def rehearse(stage: str, ranks: int, *, timeout: float = TIMEOUT_SECONDS, **settings) -> Prediction:
    """Run rank 0 of `ranks` of a stage's script for two steps on this machine; collectives move nothing.

    `timeout` is the deadline in seconds. Raises `UsageError` where the script cannot be played.
    """
    return rehearse_script(workspace.script_path(stage), ranks, to_argv(settings), timeout)


def rehearse_script(script: Path, ranks: int, argv: list[str], timeout: float = TIMEOUT_SECONDS) -> Prediction:
    """The same for any stage script and the command line of its settings."""
    check_request(script, ranks, argv, timeout)
    with tempfile.TemporaryDirectory(prefix="fsdp2-lab-") as folder:
        request = {"mode": "rehearse", "ranks": ranks, "argv": argv}
        told = play(script, request, {RUN_DIR_VARIABLE: folder}, timeout)
        record = next(iter(read_records(Path(folder))), None)
    peaks = [step.peak_bytes for step in record.steps[:2]] if record else []
    if len(peaks) < 2 or None in peaks:
        raise UsageError(f"{script} ended after {len(peaks)} of the 2 metered steps that a rehearsal needs.")
    device = "CUDA" if record.how == MEASURED_CUDA else "CPU"
    return Prediction(
        how=f"rehearsed ({device})",
        ranks=ranks,
        peak_bytes=peaks[1],
        step0_peak_bytes=peaks[0],
        peak_at=f"step 1 of stage {record.steps[1].stage}",
        terms=record.steps[1].terms,
        step0_terms=record.steps[0].terms,
        notes=[CANNOT_SHOW],
        **told,
    )
