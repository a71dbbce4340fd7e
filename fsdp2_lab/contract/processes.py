"""The processes of one run, found by what they all inherit: the run folder in their environment."""

import os
import time

import psutil

from .workspace import RUN_DIR_VARIABLE

_ROUNDS = 20  # a process may fork while its siblings are being ended


def processes_of(run_dir: str) -> list[psutil.Process]:
    """Every process of a run but the caller; ranks have sessions of their own and outlive a killed parent."""
    found = []
    for process in psutil.process_iter():
        environment = ignore_gone(process.environ) or {}
        if environment.get(RUN_DIR_VARIABLE) == run_dir and process.pid != os.getpid():
            found.append(process)
    return found


def kill_all(run_dir: str) -> None:
    """Kill every process of a run, and what those fork meanwhile."""
    for _ in range(_ROUNDS):
        alive = [process for process in processes_of(run_dir) if not _is_zombie(process)]
        if not alive:
            return
        for process in alive:
            ignore_gone(process.kill)
        time.sleep(0.05)


def ignore_gone(ask):
    """What a question to a process answers, or `None` where the process is gone or another user's."""
    try:
        return ask()
    except (psutil.Error, OSError):
        return None


def _is_zombie(process: psutil.Process) -> bool:
    return ignore_gone(process.status) in (None, psutil.STATUS_ZOMBIE)
