"""The launcher: one script, N ranks under torchrun, one `Run` back."""

import math
import os
import secrets
import shlex
import time
from pathlib import Path

from ..contract import workspace
from ..contract.errors import StageFailed, StageInterrupted, StageTimeout, UsageError
from ..contract.record import LaunchRecord, write_launch
from ..contract.settings import parse_settings, to_argv
from .environment import rank_environment, threads_per_rank
from .gpus.choice import rank_count, taken
from .interrupts import deferred
from .job import Agent, Job, start_agent
from .live.progress import Progress, make_progress
from .machine import machine
from .runs import Run
from .verdict.conclusion import conclude
from .verdict.evidence import oom_kills
from .warm import NotWarm, start_warm_agent, wait_until_ready, why_cold

TIMEOUT_SECONDS = 600.0
_POLL_SECONDS = 0.1


def launch(
    stage: str,
    ranks: int | None = None,
    *,
    timeout: float = TIMEOUT_SECONDS,
    warm: bool | None = None,
    gpus: list[int] | None = None,
    wait: float = 0,
    snapshot: bool = False,
    **settings,
) -> Run:
    """Run the script of a stage under torchrun and return what every rank recorded.

    `ranks` is the machine's default unless given, `timeout` the deadline in seconds, `settings` the
    script's command line. `warm=False` starts every rank as a Python of its own, as does FSDP2_LAB_WARM=0 for
    all launches; otherwise they are forked where that is safe. `gpus` are the GPUs to take, as
    `nvidia-smi` numbers them, instead of the freest; `wait` is how many seconds to wait for GPUs that others hold.
    `snapshot` keeps the CUDA allocator's history of every rank in the run's folder, for PyTorch's memory viewer.
    Raises `UsageError` before any rank starts, `StageFailed` with the failing rank's traceback, `StageTimeout` at
    the deadline; ends every process it started in each case.
    """
    script = workspace.script_path(stage)
    if not script.exists():
        known = ", ".join(sorted(path.stem for path in workspace.launch_dir().glob("*.py"))) or "none yet"
        raise UsageError(f"No stage {stage!r}: {script.parent.name}/{script.name} is not written. Stages: {known}.")
    run = execute(
        script, ranks, to_argv(settings), timeout, make_progress(), warm, gpus=gpus, wait=wait, snapshot=snapshot
    )
    if run.status == "timeout":
        raise StageTimeout(run.failure(), run)
    if run.status != "ok":
        raise StageFailed(run.failure(), run)
    return run


def execute(
    script: Path,
    ranks: int | None,
    argv: list[str],
    timeout: float,
    progress: Progress,
    warm: bool | None = False,
    gpus: list[int] | None = None,
    wait: float = 0,
    snapshot: bool = False,
) -> Run:
    """Run any torchrun script to its end, its deadline or an interrupt; the returned `Run` says which.

    Raises `UsageError` where the request cannot be run at all, and `StageInterrupted` once an interrupt has been
    cleaned up after.
    """
    ranks = rank_count(machine(), ranks, gpus)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise UsageError(f"timeout={timeout}: expected a number of seconds above 0.")
    if snapshot and not machine().gpus:
        raise UsageError("snapshot: it is the CUDA allocator's, and no GPU is here; show.memory_curve draws a CPU's.")
    script = _check_script(script, argv)
    run_dir = workspace.new_run_path(script, time.strftime("%Y%m%d-%H%M%S"), secrets.token_hex(4))
    with taken(machine(), ranks, gpus, wait, run_dir.name) as devices:
        if snapshot:
            devices = devices | {workspace.SNAPSHOT_VARIABLE: "1"}
        return _execute(script, argv, _new_run(run_dir, script, ranks, argv, timeout), run_dir, devices, progress, warm)


def _execute(script: Path, argv, record: LaunchRecord, run_dir: Path, devices: dict, progress, warm) -> Run:
    job, code, status, kills, began = None, None, "interrupted", oom_kills(), time.monotonic()
    try:
        record.threads_per_rank = threads_per_rank(record.ranks)
        progress.start(record, run_dir)
        record.cold_because = _try_to_warm_up(warm)
        with deferred():
            job = Job(_start(script, argv, record, run_dir, devices), run_dir, record.ranks)
        deadline = time.monotonic() + record.timeout_seconds
        while (code := job.poll()) is None and time.monotonic() < deadline:
            progress.update()
            time.sleep(_POLL_SECONDS)
        if code is None:
            status = "timeout"
            job.ask_places()
        else:
            status = "failed" if code else "ok"
    except KeyboardInterrupt:
        raise StageInterrupted(Run(run_dir, record)) from None
    except OSError as error:  # of this process: no descriptors, no processes, no memory left
        raise UsageError(
            f"torchrun could not be started or watched ({error.strerror}): free some and try again."
        ) from None
    finally:
        with deferred(then_raise=status != "interrupted"):  # a second Ctrl-C has nothing left to end
            if job:
                job.end()
            conclude(record, run_dir, status, code, time.monotonic() - began, job.rss_peak_bytes if job else {}, kills)
            progress.finish(Run(run_dir, record))
    return Run(run_dir, record)


def _check_script(script: Path, argv: list[str]) -> Path:
    script = script.resolve()
    if not script.is_file():
        raise UsageError(f"No script {script}: expected a Python file for torchrun, and its settings after it.")
    try:
        text = script.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{script} cannot be read ({error.strerror}).") from None
    # Only a script that reads our settings has its command line checked here; another's is its own affair.
    if "read_settings(" in text:
        parse_settings(argv)
    return script


def _new_run(run_dir: Path, script: Path, ranks: int, argv: list[str], timeout: float) -> LaunchRecord:
    command = ["torchrun", "--standalone", f"--nproc_per_node={ranks}", _relative(script), *argv]
    record = LaunchRecord(
        id=run_dir.name,
        script=_relative(script),
        ranks=ranks,
        how=machine().how,
        command=shlex.join(command),
        started_unix_seconds=time.time(),
        timeout_seconds=timeout,
    )
    workspace.make_run_dir(run_dir)
    write_launch(run_dir, record)
    return record


def _start(script: Path, argv: list[str], record: LaunchRecord, run_dir: Path, devices: dict[str, str]) -> Agent:
    logs = run_dir / "logs"
    logs.mkdir()
    environment = rank_environment(run_dir, record.ranks, record.timeout_seconds, devices)
    arguments = [f"--nproc-per-node={record.ranks}", f"--log-dir={logs}", "--redirects=3"]
    arguments += ["-m", "fsdp2_lab.agent.worker", str(script), *argv]
    if record.cold_because is None:
        try:
            return start_warm_agent(arguments, script, environment, logs / "torchrun.log")
        except NotWarm as reason:
            record.cold_because = str(reason)
    return start_agent(arguments, environment, logs / "torchrun.log")


def _try_to_warm_up(warm: bool | None) -> str | None:
    # Here, where an interrupt ends the wait; why not, where it is not to be.
    reason = why_cold(warm)
    if reason is None:
        try:
            wait_until_ready()
        except NotWarm as not_warm:
            return str(not_warm)
    return reason


def _relative(path: Path) -> str:
    # Ranks work in the caller's folder, so that a relative --model means the same to both.
    return os.path.relpath(path)
