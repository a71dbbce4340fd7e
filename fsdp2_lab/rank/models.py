"""Models on the rank: the config that `--model` names, and the blocks that repeat in any architecture."""

from pathlib import Path

from torch import nn
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, PretrainedConfig

from ..contract import stand_in
from ..contract.errors import UsageError, first_line
from ..contract.model_source import find_model
from ..contract.settings import Settings


def model_config(settings: Settings) -> PretrainedConfig:
    """The Hugging Face config of `--model`. Raises `UsageError` where transformers cannot read it."""
    source = find_model(settings.model, settings.weights)
    try:
        if source.folder is None:
            config = AutoConfig.for_model(**source.config)
        else:
            config = AutoConfig.from_pretrained(source.folder, trust_remote_code=False)
    except Exception as error:  # transformers checks configs in many ways; any of them is the config's fault
        raise UsageError(
            f"--model {settings.model}: transformers cannot use this config ({first_line(error)})."
        ) from error
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UsageError(
            f"--model {settings.model}: {config.model_type!r} is no causal language model in transformers."
        )
    return stand_in.playing.config(config) if stand_in.playing else config


def checkpoint_folder(settings: Settings) -> Path:
    """The safetensors folder of `--weights`. Raises `UsageError` where `--model` and `--weights` name none."""
    if checkpoint := find_model(settings.model, settings.weights).checkpoint:
        return checkpoint
    if stand_in.playing:
        return Path(settings.model)  # nothing will be read from it
    raise UsageError(f"--model {settings.model} has no checkpoint of its own; name a folder in --weights.")


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """The repeated blocks of a model, in order: the members of its outermost lists of alike modules.

    Finds `model.layers` of Llama, Qwen and Mistral and `transformer.h` of GPT-2 alike.
    Raises `UsageError` where nothing repeats.
    """
    blocks = list(_blocks(model))
    if not blocks:
        raise UsageError(
            f"{type(model).__name__} has no repeated block list (an nn.ModuleList of modules of one class with "
            "parameters); apply fully_shard to its modules by hand."
        )
    return blocks


def _blocks(module: nn.Module):
    for child in module.children():
        members = list(child.children())
        alike = len({type(member) for member in members}) == 1
        if isinstance(child, nn.ModuleList) and alike and all(any(True for _ in m.parameters()) for m in members):
            yield from members
        else:
            yield from _blocks(child)
