"""The rank side: what a script imports. No IPython, no matplotlib; heavy imports wait until they are used."""

import os
from importlib import import_module

# The profiler announces every start and stop on stderr unless told otherwise before torch loads it.
os.environ.setdefault("KINETO_LOG_LEVEL", "6")

_HOMES = {
    "open_record": "recorder",
    "read_settings": "settings",
    "model_config": "models",
    "find_blocks": "models",
    "initial_weights": "weights",
    "load_slices": "slices",
    "checkpoint_folder": "models",
    "save_checkpoints": "weights",
    "text_batches": "text",
    "held_out_batches": "text",
    "unigram_loss": "text",
    "held_out_loss": "evaluate",
    "TrainingState": "training_state",
    "save_pretrained": "pretrained",
}
__all__ = list(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
