"""The dry run: one rank of any job, byte by byte, from the unedited script, with nothing allocated."""

from pathlib import Path

from ..contract import workspace
from ..contract.errors import UsageError
from ..contract.settings import to_argv
from ..contract.terms import in_order
from .devices import DEVICES, supposed
from .prediction import Prediction
from .process import TIMEOUT_SECONDS, check_request, play


def dryrun(
    stage: str,
    ranks: int,
    *,
    device: str = "auto",
    full_depth: bool = False,
    timeout: float = TIMEOUT_SECONDS,
    **settings,
) -> Prediction:
    """Play rank 0 of `ranks` through two steps of a stage's script, without memory, weights or a GPU.

    `device` is whose kernels to suppose: `cpu`, `cuda`, or this machine's. A deep model is played at a few depths
    and extended, unless `full_depth`. `timeout` is the deadline in seconds. Raises `UsageError` where the script does
    what fake tensors cannot.
    """
    return dryrun_script(workspace.script_path(stage), ranks, to_argv(settings), device, full_depth, timeout)


def dryrun_script(
    script: Path,
    ranks: int,
    argv: list[str],
    device: str = "auto",
    full_depth: bool = False,
    timeout: float = TIMEOUT_SECONDS,
) -> Prediction:
    """The same for any stage script and the command line of its settings."""
    if device not in DEVICES:
        raise UsageError(f"device={device!r}: expected one of {', '.join(DEVICES)}.")
    check_request(script, ranks, argv, timeout)
    device = supposed(device)
    if device == "cuda":
        argv = ["--compute-dtype", "bfloat16", *argv]  # what `auto` is there; the reader's own comes later and prevails
    request = {"mode": "dryrun", "ranks": ranks, "argv": argv, "device": device, "full_depth": full_depth}
    # Faked CUDA needs CUDA; so the script sees a CPU, and the differences are made up for.
    told = play(script, request, {"CUDA_VISIBLE_DEVICES": ""}, timeout)
    for name in ("terms", "step0_terms"):
        told[name] = in_order(told[name])
    return Prediction(how=f"dry run ({device.upper()})", ranks=ranks, **told)
