"""Model names and folders: what `--model` and `--weights` may say, checked without torch."""

import json
from dataclasses import dataclass
from pathlib import Path

from . import workspace
from .errors import UsageError
from .published import PUBLISHED
from .safetensors_files import safetensors_files
from .untrusted import read_text

# Vocabulary of ByT5's tokenizer: 3 special tokens, 256 bytes, 125 sentinels.
_BYTE_LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 384,
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 1024,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
BUILT_IN = {
    "byte-llama": {**_BYTE_LLAMA, "tie_word_embeddings": False},
    "byte-llama-tied": {**_BYTE_LLAMA, "tie_word_embeddings": True},
}


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from. `checkpoint` is a safetensors folder, or `None` for random weights."""

    name: str
    config: dict
    folder: Path | None
    checkpoint: Path | None

    @property
    def max_seq(self) -> int | None:
        """The longest sequence the positions allow, in tokens; `None` where the config does not say."""
        limits = (self.config.get("max_position_embeddings"), self.config.get("n_positions"))
        return next((limit for limit in limits if isinstance(limit, int) and limit > 0), None)

    @property
    def has_tokenizer(self) -> bool:
        """Whether the folder brings a tokenizer of its own; where not, text goes in as bytes."""
        return self.folder is not None and (self.folder / "tokenizer.json").exists()


def find_model(name: str, weights: str = "auto") -> ModelSource:
    """Resolve `--model` and `--weights`.

    `name` is a built-in name, a published model's (its shape alone), or a Hugging Face folder with a `config.json`.
    `weights` is `auto` (the
    model folder's own safetensors; for a built-in name, its cached checkpoint), `random`, or a folder.
    Raises `UsageError` for a folder that is missing, has no config, or holds pickled weights only.
    """
    try:
        return _find(name, weights)
    except (OSError, RuntimeError, ValueError) as error:  # a path too long, unreadable, with a NUL, ~nobody
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--model {name[:80]!r}, --weights {weights[:80]!r}: no such place ({reason}).") from None


def _find(name: str, weights: str) -> ModelSource:
    if config := BUILT_IN.get(name) or PUBLISHED.get(name):
        folder = None
        own_checkpoint = workspace.checkpoints_dir() / name
    else:
        folder = Path(name).expanduser()
        config, own_checkpoint = _read_config(folder), folder
    if weights == "random":
        checkpoint = None
    elif weights == "auto":
        checkpoint = own_checkpoint if safetensors_files(own_checkpoint) else None
    else:
        checkpoint = Path(weights).expanduser()
        if not safetensors_files(checkpoint):
            raise UsageError(f"--weights {weights}: expected `auto`, `random` or a folder with *.safetensors in it.")
    return ModelSource(name, config, folder, checkpoint)


def _read_config(folder: Path) -> dict:
    file = folder / "config.json"
    if not folder.is_dir():
        names = ", ".join([*BUILT_IN, *PUBLISHED])
        raise UsageError(f"--model {folder}: no such folder, and no known name (those are {names}).")
    if not file.exists():
        raise UsageError(f"--model {folder}: no config.json in it; expected a Hugging Face model folder.")
    try:
        config = _read_json(file)
    except (OSError, ValueError) as error:
        raise UsageError(f"--model {folder}: config.json cannot be read ({error}).") from None
    model_type = config.get("model_type") if isinstance(config, dict) else None
    if not isinstance(model_type, str) or not model_type:
        raise UsageError(f"--model {folder}: config.json has no `model_type`; expected a Hugging Face model config.")
    return config


def _read_json(file: Path):
    # A hub's cache keeps links to files; configs of some models hold Infinity, which strict JSON has not.
    try:
        return json.loads(read_text(file, follow=True))
    except RecursionError:
        raise ValueError("nested too deeply") from None
