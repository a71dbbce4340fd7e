"""The cached "pretrained" checkpoint: trained once on the reader's machine, by a stage of the workbook."""

from pathlib import Path

from ..contract import workspace
from ..contract.errors import UsageError
from ..contract.models import BUILT_IN, has_safetensors
from .launcher import launch


def checkpoint(model: str = "byte-llama") -> Path:
    """The folder of a built-in model's checkpoint; the first call trains it, on one process in about a minute.

    Raises `UsageError` for a name that is not built in.
    """
    if model not in BUILT_IN:
        raise UsageError(f"checkpoint({model!r}): only built-in models are made here: {', '.join(BUILT_IN)}.")
    folder = workspace.checkpoints_dir() / model
    if not has_safetensors(folder):
        launch("pretrain", ranks=1)
    return folder
