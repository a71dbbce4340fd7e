"""Memory for what a checkpoint holds of a sharded model, and what was on `meta` until now."""

from collections.abc import Iterable

import torch
from torch import nn


def materialize(model: nn.Module, device: torch.device, but: Iterable[torch.Tensor] = ()) -> None:
    """Give every tensor on `meta`, except those in `but`, uninitialised memory on `device`: of a DTensor its shard.

    That is parameters and the buffers that checkpoints hold; what a model computes is left alone (`model.to_empty`
    would overwrite it). Tied tensors stay tied. A module at a time: fully_shard copies shards that it has to pad, and
    no more than one module's are there twice.
    """
    held = model.state_dict(keep_vars=True).values()
    bare = {value for value in held if isinstance(value, torch.Tensor) and value.is_meta} - set(but)
    made: dict[torch.Tensor, torch.Tensor] = {}  # a tied tensor's first place makes it, the others take it
    for module in model.modules():
        named = [*module.named_parameters(recurse=False, remove_duplicate=False), *module.named_buffers(recurse=False)]
        own = {name: old for name, old in named if old in bare}
        first = {old: name for name, old in reversed(own.items()) if old not in made}
        if first:
            empty = {name: torch.empty_like(old, device=device) for old, name in first.items()}
            module.load_state_dict(empty, strict=False, assign=True)
        made |= {old: getattr(module, name) for old, name in first.items()}
        for name, old in own.items():
            setattr(module, name, made[old])
