"""What `nvidia-smi` knows about this machine's GPUs: asked without torch, so that no CUDA context comes of it."""

import subprocess
from dataclasses import dataclass

import psutil

_TIMEOUT_SECONDS = 20.0  # with a driver that is not loaded yet it takes seconds
_MIB = 2**20


@dataclass(frozen=True)
class Listed:
    """One line of `nvidia-smi`: its number there, its UUID, and its memory, `None` where the driver does not say."""

    index: int
    uuid: str
    used_bytes: int | None
    total_bytes: int | None


def list_gpus() -> list[Listed]:
    """All GPUs of this machine by number; none where `nvidia-smi` is missing or has no answer."""
    rows = _query("--query-gpu=index,uuid,memory.used,memory.total")
    return [Listed(int(row[0]), row[1], _bytes(row[2]), _bytes(row[3])) for row in rows if row[0].isdecimal()]


def processes_on(uuid: str) -> list[str]:
    """Who computes on a GPU, as `ana's python, pid 4711`; a container may see none of them."""
    return [_who(pid) for found, pid in _query("--query-compute-apps=gpu_uuid,pid") if found == uuid]


def _query(what: str) -> list[list[str]]:
    command = ["nvidia-smi", what, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    return [row for row in rows if len(row) == what.count(",") + 1] if done.returncode == 0 else []


def _bytes(mib: str) -> int | None:
    return int(mib) * _MIB if mib.isdecimal() else None


def _who(pid: str) -> str:
    try:
        process = psutil.Process(int(pid))
        return f"{process.username()}'s {process.name()}, pid {pid}"
    except (psutil.Error, ValueError, KeyError):
        return f"pid {pid:.20}"
