"""Prints the rows that fully_shard leaves each rank, for several numbers of both, without other processes."""

import json

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

ROWS = (*range(1, 20), 128, 704)

found = {ranks: {rows: [] for rows in ROWS} for ranks in (1, 2, 3, 4, 7, 16)}
for ranks, by_rows in found.items():
    for rank in range(ranks):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
        mesh = init_device_mesh("cpu", (ranks,))
        for rows, held in by_rows.items():
            layer = fully_shard(torch.nn.Linear(2, rows, bias=False), mesh=mesh)
            held.append(layer.weight.to_local().shape[0])
        dist.destroy_process_group()
print(json.dumps(found))
