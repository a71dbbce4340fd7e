"""One question to the GPU, in a process of its own: what device it is, or what one rehearsal takes of it.

The question comes as JSON in the first argument: `{}` for the device, else a case of `gpu_check.py`. JSON is printed.
"""

import json
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import torch

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.record import MEASURED_CUDA, read_records
from fsdp2_lab.contract.settings import to_argv
from fsdp2_lab.contract.workspace import RUN_DIR_VARIABLE
from fsdp2_lab.predict.process import play

TRAIN = Path(__file__).resolve().parents[1] / "launch" / "train.py"
SAMPLE_SECONDS = 0.05


def device() -> dict:
    """Name, memory and versions. Raises `UsageError` where torch sees no GPU."""
    if not torch.cuda.is_available():
        raise UsageError(f"torch {torch.__version__} sees no GPU; install a build of it with CUDA.")
    _free, total_bytes = torch.cuda.mem_get_info()
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda}
    return {"device": torch.cuda.get_device_name(), "total_bytes": total_bytes, "versions": versions}


def rehearsal(case: dict) -> dict:
    """Bytes that the allocator gave out and held, and bytes that the driver counts as used, at their peaks."""
    settings = {name: case[name] for name in ("model", "batch", "seq", "checkpointing")}
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        request = {"mode": "rehearse", "ranks": case["ranks"], "argv": to_argv(settings)}
        with used_bytes() as used:
            play(TRAIN, request, {RUN_DIR_VARIABLE: folder})
        record = read_records(Path(folder))[0]
    if record.how != MEASURED_CUDA:
        raise UsageError(f"the rehearsal is {record.how}, not {MEASURED_CUDA}.")
    return {
        "allocated_step0_bytes": record.steps[0].peak_bytes,
        "allocated_bytes": record.steps[1].peak_bytes,
        "reserved_bytes": record.stages[-1].reserved_bytes,
        "used_bytes": used[0],
        "step_seconds": record.steps[1].seconds,
    }


@contextmanager
def used_bytes():
    """A list with the most that others have used meanwhile: the rehearsal, context and libraries included.

    What the driver says is of the whole device, so this process's own context and what was there before come off.
    """
    torch.cuda.mem_get_info()  # makes this process's context
    free_before, _total = torch.cuda.mem_get_info()
    most, ended = [0], threading.Event()

    def sample():
        while not ended.wait(SAMPLE_SECONDS):
            most[0] = max(most[0], free_before - torch.cuda.mem_get_info()[0])

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield most
    finally:
        ended.set()
        sampler.join()


def main() -> None:
    asked = json.loads(sys.argv[1])
    try:
        answer = rehearsal(asked) if asked else device()
    except UsageError as error:
        answer = {"error": str(error)}
    except torch.OutOfMemoryError as error:
        answer = {"error": f"{type(error).__name__}: {error}".partition("\n")[0]}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
