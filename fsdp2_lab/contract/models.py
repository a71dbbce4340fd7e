"""Model names and folders: what `--model` and `--weights` may say, checked without torch."""

import json
from dataclasses import dataclass
from pathlib import Path

from . import workspace
from .errors import UsageError

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
        return self.config.get("max_position_embeddings") or self.config.get("n_positions")


def find_model(name: str, weights: str = "auto") -> ModelSource:
    """Resolve `--model` and `--weights`.

    `name` is a built-in name or a Hugging Face folder with a `config.json`. `weights` is `auto` (the
    model folder's own safetensors; for a built-in name, its cached checkpoint), `random`, or a folder.
    Raises `UsageError` for a folder that is missing, has no config, or holds pickled weights only.
    """
    if name in BUILT_IN:
        config, folder = BUILT_IN[name], None
        own_checkpoint = workspace.checkpoints_dir() / name
    else:
        folder = Path(name).expanduser()
        config, own_checkpoint = _read_config(folder), folder
    if weights == "random":
        checkpoint = None
    elif weights == "auto":
        checkpoint = own_checkpoint if has_safetensors(own_checkpoint) else None
    else:
        checkpoint = Path(weights).expanduser()
        if not has_safetensors(checkpoint):
            raise UsageError(f"--weights {weights}: expected `auto`, `random` or a folder with *.safetensors in it.")
    return ModelSource(name, config, folder, checkpoint)


def has_safetensors(folder: Path) -> bool:
    """Whether a folder holds safetensors. Raises `UsageError` where its only weights are pickled."""
    if any(folder.glob("*.safetensors")):
        return True
    pickled = next((p.name for p in sorted(folder.glob("*")) if p.suffix in (".bin", ".pt", ".pth")), None)
    if pickled:
        raise UsageError(
            f"{folder} has weights only as a pickle ({pickled}), which can run code when loaded; "
            "convert them to safetensors, or say `--weights random`."
        )
    return False


def _read_config(folder: Path) -> dict:
    file = folder / "config.json"
    if not folder.is_dir():
        raise UsageError(f"--model {folder}: no such folder, and no built-in name (those are {', '.join(BUILT_IN)}).")
    if not file.exists():
        raise UsageError(f"--model {folder}: no config.json in it; expected a Hugging Face model folder.")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UsageError(f"--model {folder}: config.json cannot be read ({error}).") from None
    if not isinstance(config, dict) or not config.get("model_type"):
        raise UsageError(f"--model {folder}: config.json has no `model_type`; expected a Hugging Face model config.")
    return config
