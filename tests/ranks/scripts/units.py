"""A small sharded model in plain PyTorch, in the ways that its one option, a JSON object, asks for.

Its steps go through `record.steps` and nothing else of ours; `CommDebugMode` counts their collectives.
"""

import json
import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.utils.checkpoint import checkpoint

from fsdp2_lab.rank import open_record

WIDTH, BLOCKS, VOCABULARY = 64, 3, 50
asked = {"shard": True, "reshard": True, "checkpointing": False, "tied": False, "grouped": False, "passes": 1}
asked |= json.loads(sys.argv[1])


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = torch.nn.Linear(WIDTH, 7 * WIDTH), torch.nn.Linear(7 * WIDTH, WIDTH)

    def forward(self, hidden):  # (batch, WIDTH)
        return hidden + self.narrow(self.wide(hidden).relu())


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
        if asked["tied"]:
            self.head.weight = self.embed.weight

    def forward(self, tokens):  # (batch,)
        hidden = self.embed(tokens)
        for block in self.blocks:
            hidden = checkpoint(block, hidden, use_reentrant=False) if asked["checkpointing"] else block(hidden)
        return self.head(self.norm(hidden))


record = open_record()
record.stage("train")
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = Model()
if asked["shard"]:
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=asked["reshard"])
    if asked["grouped"]:
        fully_shard([model.embed, model.head], mesh=mesh, reshard_after_forward=asked["reshard"])
    fully_shard(model, mesh=mesh, reshard_after_forward=asked["reshard"])
optimizer = torch.optim.AdamW(model.parameters())

for step, tokens in enumerate(record.steps(torch.randint(VOCABULARY, (3, 8)))):
    counts = []
    for _ in range(asked["passes"]):
        # It sees one forward and its backward. In step 1 nothing stands between the meter and FSDP2.
        communication = CommDebugMode()
        with nullcontext() if step == 1 else communication:
            model(tokens).square().mean().backward()
        counts += [(str(operation), count) for operation, count in communication.get_comm_counts().items()]
    optimizer.step()
    optimizer.zero_grad()
    record.log(
        loss=0.0,
        tokens=len(tokens),
        all_gathers=sum(count for name, count in counts if "all_gather" in name or "allgather" in name),
        reduce_scatters=sum(count for name, count in counts if "reduce_scatter" in name),
    )
record.note(modules=[name for name, module in model.named_modules() if name.count(".") == 1 and "blocks" in name])
