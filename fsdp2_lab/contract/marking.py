"""A forked process shows its run folder where others look for it: in the environment it seems to have started with.

`/proc/PID/environ` is memory of the process itself, filled when its program was started. A fork keeps its parent's,
whatever it sets later; so the server of warm ranks starts with room to write a folder into. Linux only.
"""

import ctypes
from pathlib import Path

from .workspace import RUN_DIR_VARIABLE

ROOM = {RUN_DIR_VARIABLE: " " * 4096}  # for the environment that the server is started with
_ENV_START, _ENV_END = 47, 48  # in /proc/PID/stat, counted from the state on; proc_pid_stat(5)


def show_run_dir(run_dir: str) -> None:
    """Write the run folder into the room that this process's first environment has for it."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
    found = ctypes.string_at(start, end - start)
    at = found.index(f"{RUN_DIR_VARIABLE}=".encode()) + len(RUN_DIR_VARIABLE) + 1
    room = found.index(b"\0", at) - at
    ctypes.memmove(start + at, run_dir.encode()[:room].ljust(room, b"\0"), room)
