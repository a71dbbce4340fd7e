"""What a rank's environment is: the caller's, and a short list of ours. docs/promises.md tells it to readers."""

import os
import sys
from pathlib import Path

from ..contract.workspace import RUN_DIR_VARIABLE, TIMEOUT_VARIABLE
from .machine import machine

# torch's record of collectives: what a stuck rank waits in is read from it, and NCCL's watchdog writes it out.
_FLIGHT_RECORDER = {
    "TORCH_FR_BUFFER_SIZE": "2000",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    "TORCH_FR_DUMP_TEMP_FILE": "{logs}/nccl_trace_rank_",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "{logs}/nccl_trace_rank_",  # its name in earlier versions
}


def rank_environment(run_dir: Path, ranks: int, timeout_seconds: float, devices: dict[str, str]) -> dict[str, str]:
    """The environment of every rank of a launch; `devices` are the variables of the GPUs that it took."""
    environment = dict(os.environ)
    # torchrun takes options from PET_…, as a restart of failed ranks; with the other, a Python that failed ends well.
    for name in [name for name in environment if name.startswith("PET_") or name == "PYTHONINSPECT"]:
        del environment[name]
    for ours in ("MPLBACKEND", "PYTORCH_NVML_BASED_CUDA_CHECK"):  # for a notebook's kernel, not for a rank
        environment.pop(ours, None)
    environment |= {RUN_DIR_VARIABLE: str(run_dir), "PYTHONUNBUFFERED": "1", **devices}
    environment[TIMEOUT_VARIABLE] = str(timeout_seconds)
    environment.setdefault("OMP_NUM_THREADS", str(machine().threads_per_rank(ranks)))
    # All ranks are on this machine: gloo would otherwise ask for an address of the host's name.
    environment.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    for name, value in _FLIGHT_RECORDER.items():
        environment.setdefault(name, value.format(logs=run_dir / "logs"))
    return environment


def threads_per_rank(ranks: int) -> int | None:
    """What a rank's OMP_NUM_THREADS will be; `None` where the caller's own is no number."""
    threads = os.environ.get("OMP_NUM_THREADS", str(machine().threads_per_rank(ranks)))
    return int(threads) if threads.isdecimal() else None
