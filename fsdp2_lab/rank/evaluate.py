"""Loss on text that training never sees, over all ranks."""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.functional import cross_entropy

from ..contract import stand_in
from .text import IGNORED


@torch.no_grad()
def held_out_loss(model: nn.Module, batches: Iterable, device: torch.device) -> float:
    """Mean loss in nats per token over the batches of all ranks; every rank must call it.

    The model goes back to the mode it was in, with its parameters sharded.
    """
    if stand_in.playing:
        return float("nan")  # nothing is learnt there, and nothing of it is left when training begins
    was_training = model.training
    model.eval()
    total = torch.zeros(2, dtype=torch.float64, device=device)  # summed loss, tokens
    for inputs, targets in batches:
        logits = model(input_ids=inputs.to(device), use_cache=False).logits  # (batch, seq, vocab)
        targets = targets.to(device).flatten()
        total[0] += cross_entropy(logits.float().flatten(0, 1), targets, ignore_index=IGNORED, reduction="sum")
        total[1] += (targets != IGNORED).sum()
    if dist.is_initialized():
        dist.all_reduce(total)
    # With reshard_after_forward=False a forward leaves gathered parameters behind, and an optimizer built on
    # those would update copies that nobody uses.
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    model.train(was_training)
    return (total[0] / total[1]).item()
