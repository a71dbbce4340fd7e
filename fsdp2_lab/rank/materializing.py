"""Memory for a sharded model's parameters, which were on `meta` until now."""

import torch
from torch import nn


def materialize(model: nn.Module, device: torch.device, but: frozenset[str] | set[str] = frozenset()) -> None:
    """Give every parameter on `meta`, but those named, uninitialised memory on `device`: of a DTensor its local shard.

    Tied parameters stay tied, and buffers are left alone (`model.to_empty` would overwrite them). A module at a time:
    fully_shard copies shards that it has to pad, and no more than one module's are there twice.
    """
    left = {parameter for name, parameter in model.named_parameters() if name in but}
    made: dict[nn.Parameter, nn.Parameter] = {}  # a tied parameter's first module makes it, the others take it
    for module in model.modules():
        parameters = module.named_parameters(recurse=False)
        own = {name: parameter for name, parameter in parameters if parameter.is_meta and parameter not in left}
        empty = {name: torch.empty_like(old, device=device) for name, old in own.items() if old not in made}
        if empty:
            module.load_state_dict(empty, strict=False, assign=True)
        for name, old in own.items():
            if name in empty:
                made[old] = getattr(module, name)
            else:
                setattr(module, name, made[old])
