"""The processes of one run, found by the run folder in their environment, and by who started them."""

import os
import time
from collections.abc import Collection

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


def end_children(but: Collection[int] = ()) -> None:
    """Kill this process's children, except the pids in `but`, and what descends from them, whatever its environment.

    What lost its parent is among them, where this process and its ranks adopt orphans.
    """
    for _ in range(_ROUNDS):
        children = ignore_gone(lambda: psutil.Process().children()) or []
        alive = [child for child in children if child.pid not in but and not _is_zombie(child)]
        if not alive:
            return
        for child in alive:
            end_descendants(child)
            ignore_gone(child.kill)
        time.sleep(0.02)


def end_descendants(parent: psutil.Process) -> None:
    """Kill what a process has started, and what that has started, but not the process itself."""
    for process in ignore_gone(lambda: parent.children(recursive=True)) or []:
        ignore_gone(process.kill)


def ignore_gone(ask):
    """What a question to a process answers, or `None` where the process is gone or another user's."""
    try:
        return ask()
    except (psutil.Error, OSError):
        return None


def _is_zombie(process: psutil.Process) -> bool:
    return ignore_gone(process.status) in (None, psutil.STATUS_ZOMBIE)
