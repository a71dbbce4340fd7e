"""The cached "pretrained" checkpoint: trained once on the reader's machine, by a stage of the workbook."""

from pathlib import Path

from ..contract import workspace
from ..contract.errors import UsageError
from ..contract.model_source import BUILT_IN, find_model
from ..contract.safetensors_files import safetensors_files
from .launcher import launch


def checkpoint(model: str = "byte-llama") -> Path:
    """The folder of a model's checkpoint. For a built-in model the first call trains it, in a minute or two.

    Any other model's folder is its own checkpoint. Raises `UsageError` for a folder that is no model's, and for a
    published model's name, which has no weights here.
    """
    if model not in BUILT_IN:
        if folder := find_model(model).folder:
            return folder
        raise UsageError(f"{model} is a shape without weights here: give the folder of its checkpoint.")
    folder = workspace.checkpoints_dir() / model
    if not safetensors_files(folder):
        launch("pretrain", ranks=1)
    return folder
