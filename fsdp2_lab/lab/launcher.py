"""The launcher: one script, N ranks under torchrun, one `Run` back."""

import math
import os
import secrets
import shlex
import shutil
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

from ..contract import workspace
from ..contract.errors import StageFailed, StageInterrupted, StageTimeout, UsageError
from ..contract.record import LaunchRecord, RankError, read_records, write_launch, write_record
from ..contract.settings import parse_settings, to_argv
from .diagnosis import exit_codes, find_error
from .job import Job
from .machine import machine
from .progress import make_progress
from .runs import Run

TIMEOUT_SECONDS = 600.0
_POLL_SECONDS = 0.2


def launch(stage: str, ranks: int | None = None, *, timeout: float = TIMEOUT_SECONDS, **settings) -> Run:
    """Run the script of a stage under torchrun and return what every rank recorded.

    `ranks` is the machine's default unless given, `timeout` the deadline in seconds, `settings` the
    script's command line. Raises `UsageError` before any rank starts, `StageFailed` with the failing
    rank's traceback, `StageTimeout` at the deadline; ends every process it started in each case.
    """
    script = workspace.script_path(stage)
    if not script.exists():
        known = ", ".join(sorted(path.stem for path in workspace.launch_dir().glob("*.py"))) or "none yet"
        raise UsageError(f"No stage {stage!r}: {script.parent.name}/{script.name} is not written. Stages: {known}.")
    run = execute(script, ranks, to_argv(settings), timeout, make_progress())
    if run.status == "timeout":
        raise StageTimeout(run.failure(), run)
    if run.status != "ok":
        raise StageFailed(run.failure(), run)
    return run


def execute(script: Path, ranks: int | None, argv: list[str], timeout: float, progress) -> Run:
    """Run any torchrun script to its end, its deadline or an interrupt; the returned `Run` says which.

    Raises `UsageError` where the request cannot be run at all, and `StageInterrupted` once an interrupt has been
    cleaned up after.
    """
    ranks = machine().check_ranks(machine().default_ranks if ranks is None else ranks)
    if not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise UsageError(f"timeout={timeout}: expected a number of seconds above 0.")
    script = _check_script(script, argv)
    run_dir, launch_record = _new_run(script, ranks, argv, timeout)
    job = _start(script, ranks, argv, run_dir)
    deadline = time.monotonic() + timeout
    code, status = None, "interrupted"
    try:
        progress.start(launch_record, run_dir)
        while (code := job.poll()) is None and time.monotonic() < deadline:
            progress.update()
            time.sleep(_POLL_SECONDS)
        status = "timeout" if code is None else "failed" if code else "ok"
    except KeyboardInterrupt:
        raise StageInterrupted(Run(run_dir)) from None
    finally:
        with _uninterrupted():
            job.end()
            _conclude(launch_record, run_dir, status, code, job.rss_peak_bytes)
            progress.finish(Run(run_dir))
    return Run(run_dir)


@contextmanager
def _uninterrupted():
    # A second Ctrl-C must not leave ranks behind. Only the main thread may set handlers, and only it is interrupted.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _check_script(script: Path, argv: list[str]) -> Path:
    script = script.resolve()
    if not script.is_file():
        raise UsageError(f"No script {script}: expected a Python file for torchrun, and its settings after it.")
    # Only a script that reads our settings has its command line checked here; another's is its own affair.
    if "read_settings(" in script.read_text(encoding="utf-8", errors="replace"):
        parse_settings(argv)
    return script


def _new_run(script: Path, ranks: int, argv: list[str], timeout: float) -> tuple[Path, LaunchRecord]:
    run_dir = workspace.new_run_path(script, time.strftime("%Y%m%d-%H%M%S"), secrets.token_hex(2))
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
    write_launch(run_dir, record)
    return run_dir, record


def _start(script: Path, ranks: int, argv: list[str], run_dir: Path) -> Job:
    logs = run_dir / "logs"
    logs.mkdir()
    environment = dict(os.environ)
    environment.setdefault("OMP_NUM_THREADS", str(machine().threads_per_rank(ranks)))
    # All ranks are on this machine: gloo would otherwise ask for an address of the host's name.
    environment.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    environment["PYTHONUNBUFFERED"] = "1"
    for ours in ("MPLBACKEND", "PYTORCH_NVML_BASED_CUDA_CHECK"):  # for a notebook's kernel, not for a rank
        environment.pop(ours, None)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    command += [f"--nproc-per-node={ranks}", f"--log-dir={logs}", "--redirects=3", str(script), *argv]
    return Job(command, environment, logs / "torchrun.log", run_dir)


def _flatten_logs(logs: Path) -> None:
    # torchrun leaves logs/RUN/attempt_0/RANK/stdout.log; a person looks for logs/rank0.stdout.
    for file in logs.glob("*/attempt_0/*/std*.log"):
        file.rename(logs / f"rank{file.parent.name}.{file.stem}")
    for folder in logs.glob("*/"):
        shutil.rmtree(folder)


def _conclude(launch_record: LaunchRecord, run_dir: Path, status: str, code: int | None, rss: dict[str, int]) -> None:
    logs = run_dir / "logs"
    _flatten_logs(logs)
    launch_record.rss_peak_bytes = dict(sorted(rss.items()))
    launch_record.status = status
    launch_record.seconds = time.time() - launch_record.started_unix_seconds
    launch_record.exit_codes = exit_codes(logs / "torchrun.log", launch_record.ranks, code)
    records = read_records(run_dir)
    if records:
        launch_record.how = records[0].how
    for record in records:
        # A rank cannot see its own exit code: after sys.exit(3) its record still says ok.
        if record.status == "ok" and launch_record.exit_codes[str(record.rank)]:
            record.status = "failed"
            write_record(run_dir, record)
    if status == "failed":
        said = (logs / "torchrun.log").read_text(encoding="utf-8", errors="replace")[-4000:]
        launch_record.error = find_error(records, launch_record.exit_codes, logs) or RankError(
            -1, "torchrun", "torchrun failed before any rank did", said
        )
    write_launch(run_dir, launch_record)


def _relative(path: Path) -> str:
    # Ranks work in the caller's folder, so that a relative --model means the same to both.
    return os.path.relpath(path)
