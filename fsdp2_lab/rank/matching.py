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
    """A model's parameters, each once, and those of its buffers that checkpoints hold, by name."""
    persistent = model.state_dict(keep_vars=True).keys()
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in persistent}
    return dict(model.named_parameters()) | buffers


def match(model: nn.Module, stored: dict[str, StoredTensor], folder: Path) -> Match:
    """Find each of a model's tensors among the stored ones.

    The prefix of the base model may be there or not, as in GPT-2's folders. Raises `UsageError` for a tensor of
    another shape, and for whole numbers where the model has real ones.
    """
    result, taken = Match(), set()
    prefix = getattr(model, "base_model_prefix", "") + "."
    names = _names(model)

    def take(name: str) -> StoredTensor | None:
        key = next((key for key in (name, name.removeprefix(prefix), prefix + name) if key in stored), None)
        taken.add(key)
        return stored.get(key)

    tensors = wanted(model)
    for name, tensor in tensors.items():
        places = [place for place in map(take, names.get(name, [name])) if place]
        for place in places:
            _check(name, tensor, place, folder)
        if places:
            result.found[name], result.doubles[name] = places[0], places[1:]
        else:
            result.missing.append(name)
    result.extra = [key for key in stored if key not in taken and not _computed(key, model, tensors)]
    return result


def _names(model: nn.Module) -> dict[str, list[str]]:
    """All names of each parameter, by its first."""
    together: dict[nn.Parameter, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        together.setdefault(parameter, []).append(name)
    return {names[0]: names for names in together.values()}


def _computed(key: str, model: nn.Module, tensors: dict[str, torch.Tensor]) -> bool:
    """Whether a key is of a buffer that the model computes; folders of older versions hold those, too."""
    # Llama's folders had the frequencies in every layer; what GPT-2's have, transformers lists.
    ends = {_end(name) for name, _ in model.named_buffers() if name not in tensors}
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
    if tensor.is_floating_point() and not place.dtype.startswith(("F", "BF")):
        raise UsageError(f"{place.key} is stored as {place.dtype} in {folder}, and the model has {tensor.dtype}.")
