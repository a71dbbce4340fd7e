"""Which stored tensor belongs to which tensor of a model."""

import re
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from ..contract.errors import UsageError
from .stored_tensors import StoredTensor


@dataclass
class Match:
    """`found` goes by the model's names; `extra` are the folder's keys that nothing wants.

    A tied parameter has several names, and a folder may hold it under each: those after the first are `doubles`.
    """

    found: dict[str, StoredTensor] = field(default_factory=dict)
    doubles: dict[str, list[StoredTensor]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)


def wanted(model: nn.Module) -> dict[str, torch.Tensor]:
    """A model's parameters and those of its buffers that checkpoints hold, each once, by its first name."""
    return {names[0]: tensor for tensor, names in _named(model).items()}


def match(model: nn.Module, stored: dict[str, StoredTensor], folder: Path) -> Match:
    """Find each of a model's tensors among the stored ones.

    The prefix of the base model may be there or not, as in GPT-2's folders. Raises `UsageError` for a tensor of
    another shape, and for whole numbers where the model has real ones, or the other way round.
    """
    result, taken = Match(), set()
    prefix = getattr(model, "base_model_prefix", "") + "."

    def take(name: str) -> StoredTensor | None:
        keys = (name, name.removeprefix(prefix), prefix + name)
        key = next((key for key in keys if key in stored and key not in taken), None)
        taken.add(key)
        return stored.get(key)

    named = _named(model)
    for tensor, (name, *others) in named.items():
        places = [place for place in map(take, (name, *others)) if place]
        for place in places:
            _check(name, tensor, place, folder)
        if places:
            result.found[name], result.doubles[name] = places[0], places[1:]
        else:
            result.missing.append(name)
    computed = {_end(name) for name, buffer in model.named_buffers() if buffer not in named}
    result.extra = [key for key in stored if key not in taken and not _computed(key, model, computed)]
    return result


def _named(model: nn.Module) -> dict[torch.Tensor, list[str]]:
    """The tensors that checkpoints hold, with all names of each.

    A state dict leaves out wrappers' names, such as `_checkpoint_wrapped_module`, and what a model computes.
    """
    named: dict[torch.Tensor, list[str]] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        if isinstance(value, torch.Tensor):
            named.setdefault(value, []).append(name)
    return named


def _computed(key: str, model: nn.Module, ends: set[str]) -> bool:
    """Whether a key is of a buffer that the model computes; folders of older versions hold those, too."""
    # Llama's folders had the frequencies in every layer; what GPT-2's have, transformers lists.
    listed = getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()
    return _end(key) in ends or any(re.search(pattern, key) for pattern in listed)


def _end(name: str) -> str:
    """A buffer's name and its module's: `rotary_emb.inv_freq`."""
    return ".".join(name.split(".")[-2:])


def _check(name: str, tensor: torch.Tensor, place: StoredTensor, folder: Path) -> None:
    if place.shape != tuple(tensor.shape):
        raise UsageError(
            f"{place.key} has the shape {list(place.shape)} in {folder}, and {name} {list(tensor.shape)} in the model; "
            "give the model the config it was saved with."
        )
    if tensor.is_floating_point() != place.dtype.startswith(("F", "BF")):
        raise UsageError(f"{place.key} is stored as {place.dtype} in {folder}, and the model has {tensor.dtype}.")
