"""What a signal that ended a rank most likely means, with what the system has to say for it."""

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import psutil

from ...contract.units import format_bytes

_MEANINGS = {
    "SIGKILL": "out of memory, or somebody's kill -9",
    "SIGSEGV": "a fault in native code",
    "SIGBUS": "shared memory is full (df -h /dev/shm), or a mapped file was cut short",
    "SIGABRT": "native code gave up; its last words are in the log",
    "SIGILL": "native code built for another CPU",
    "SIGFPE": "a division by zero in native code",
    "SIGTERM": "somebody, or a scheduler, asked it to end",
}


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; `signal 77` for one without a name."""
    known = {member.value: member.name for member in signal.Signals}
    return known.get(number, f"signal {number}")


def oom_kills() -> int | None:
    """How often the kernel has ended a process of our cgroup for want of memory; `None` where that is not readable."""
    for file in _cgroup_files("memory.events", "memory.oom_control"):
        with suppress(OSError):
            if found := re.search(r"^oom_kill (\d+)", file.read_text(), re.MULTILINE):
                return int(found[1])
    return None


def likely_cause(name: str, rank: int, rss_peak_bytes: dict[str, int], oom_kills_before: int | None) -> str:
    """One sentence on why a signal came: its usual meaning, and the evidence."""
    said = f"Likely cause: {_MEANINGS.get(name, 'the script, or somebody, sent it')}."
    if name != "SIGKILL":
        return said
    now = oom_kills()
    if None not in (now, oom_kills_before):
        if now > oom_kills_before:
            return f"Cause: out of memory: the kernel ended {now - oom_kills_before} process(es) of this cgroup for it."
        said = "Likely cause: somebody's kill -9; the kernel counts no process of this cgroup ended for want of memory."
    if peak := rss_peak_bytes.get(str(rank)):
        total = psutil.virtual_memory().total
        said += (
            f" The rank's resident memory was {format_bytes(peak)} at most, of {format_bytes(total)} in this machine."
        )
    return said


def _cgroup_files(version_2: str, version_1: str) -> list[Path]:
    mounted = Path("/sys/fs/cgroup")
    files = []
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0":
                files += [mounted / path.lstrip("/") / version_2, mounted / version_2]
            elif "memory" in controllers.split(","):
                files += [mounted / "memory" / path.lstrip("/") / version_1, mounted / "memory" / version_1]
    return [file for file in files if os.access(file, os.R_OK)]
