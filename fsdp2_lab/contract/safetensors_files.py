"""A Hugging Face folder's safetensors files: one file, or those that an index names."""

import json
import re
from pathlib import Path

from .errors import UsageError
from .untrusted import read_text

_SHARD = re.compile(r"[^/\\\0][^\\\0]*\.safetensors")
_PICKLES = ("pytorch_model*.bin", "model*.bin", "model*.pt", "model*.pth", "consolidated*.pth")


def safetensors_files(folder: Path) -> list[Path]:
    """The files that hold a model's weights, sorted; none where the folder has no weights.

    In transformers' order: `model.safetensors`, or else what an index names. Some folders hold the model a second
    time, in another layout or dtype, or an index that a later save left behind. Raises `UsageError` for an index that
    cannot be used or names a missing file, and for weights that are only pickled.
    """
    if (whole := folder / "model.safetensors").is_file():
        return [whole]
    if indexes := sorted(folder.glob("*.safetensors.index.json")):
        return _named_by(min(indexes, key=lambda index: not index.name.startswith("model.")))  # not `consolidated.`
    if files := sorted(folder.glob("model*.safetensors")):
        return files
    if pickled := next((file.name for pattern in _PICKLES for file in sorted(folder.glob(pattern))), None):
        raise UsageError(
            f"{folder} has weights only as a pickle ({pickled}), which can run code when loaded; "
            "convert them to safetensors, or say `--weights random`."
        )
    return []


def _named_by(index: Path) -> list[Path]:
    try:
        # A hub's cache keeps links to files.
        named = sorted(set(json.loads(read_text(index, follow=True))["weight_map"].values()))
        if not named:
            raise ValueError("it names no file")
        outside = [name for name in named if not _SHARD.fullmatch(name) or ".." in Path(name).parts]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{index} is no index of safetensors ({type(error).__name__}: {error}).") from None
    if outside:
        raise UsageError(f"{index} names {outside[0]!r:.80}, which is no safetensors file in that folder.")
    if missing := [name for name in named if not (index.parent / name).is_file()]:
        raise UsageError(f"{index} names {missing[0]}, which is not in the folder; copy the whole checkpoint.")
    return [index.parent / name for name in named]
