"""Train as launch/train.py does, in two micro-batches a step: `reduced` after each, or `held_back` until the last.

accumulating.py MODE SETTINGS…
"""

import runpy
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

import fsdp2_lab
from fsdp2_lab.rank import text_batches

mode = sys.argv.pop(1)
names = runpy.run_path(str(Path(fsdp2_lab.__file__).parents[1] / "launch" / "checkpointing.py"))
record, settings, model, config = (names[name] for name in ("record", "settings", "model", "config"))
rank, world_size, device = names["rank"], names["world_size"], names["device"]

record.stage("accumulating")
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr)
for inputs, targets in record.steps(text_batches(config, settings, rank, world_size)):
    tokens = (targets != -100).sum().to(device)
    dist.all_reduce(tokens)
    loss = torch.zeros((), device=device)
    for half in range(2):
        model.set_requires_gradient_sync(mode == "reduced" or half == 1)
        logits = model(input_ids=inputs[half::2].to(device), use_cache=False).logits
        counted = targets[half::2].to(device).flatten()
        loss_sum = cross_entropy(logits.float().flatten(0, 1), counted, reduction="sum")
        (loss_sum * world_size / tokens).backward()
        loss += loss_sum.detach() / tokens
    grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(loss)
    record.log(loss=loss, tokens=tokens, grad_norm=grad_norm.full_tensor())
