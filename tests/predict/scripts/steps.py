"""A stage script of a reader's own, one layer deep; what it does in a step is named on its command line."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from fsdp2_lab.rank import open_record

record = open_record()
record.stage("train")
dist.init_process_group("gloo")
model = torch.nn.Linear(8, 8)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in record.steps(range(1 if "once" in sys.argv else 3)):
    loss = model(torch.ones(2, 8)).sum()
    loss.backward()
    if "item" in sys.argv:
        print(loss.item())
    if "file" in sys.argv:
        torch.load("weights.pt")
    if "shape" in sys.argv:
        model(torch.ones(2, 9))
    optimizer.step()
    optimizer.zero_grad()
    record.log(loss=loss, tokens=2)
