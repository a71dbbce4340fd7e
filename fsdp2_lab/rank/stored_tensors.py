"""What a safetensors folder holds: every tensor's file, shape and dtype, from the files' headers alone."""

from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open

from ..contract.errors import UsageError, first_line
from ..contract.safetensors_files import safetensors_files


class StoredTensor(NamedTuple):
    """Where one whole tensor stands. `dtype` is safetensors' name for it: `F32`, `BF16`, `I64`."""

    file: str
    key: str
    shape: tuple[int, ...]
    dtype: str


def read_headers(folder: Path) -> dict[str, StoredTensor]:
    """The tensors of a folder by their keys. Raises `UsageError` where there are none or a file is damaged."""
    files = safetensors_files(folder)
    if not files:
        raise UsageError(f"{folder} has no safetensors to load; name a folder with model*.safetensors in it.")
    stored = {}
    for file in files:
        try:
            with safe_open(file, framework="pt") as opened:
                for key in opened.keys():  # noqa: SIM118 (no dict)
                    part = opened.get_slice(key)
                    if key in stored:
                        raise UsageError(f"{folder} holds {key} twice, in {file.name} and in {stored[key].file}.")
                    stored[key] = StoredTensor(file.name, key, tuple(part.get_shape()), part.get_dtype())
        except (SafetensorError, OSError) as error:
            raise UsageError(f"{file} cannot be read ({first_line(error):.150}); copy it again.") from None
    return stored
