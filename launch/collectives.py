"""One collective of each kind, on numbers small enough to look at.

    torchrun --standalone --nproc_per_node=2 launch/collectives.py

Written by notebooks/03_ranks_and_mesh.ipynb: change the cell there and run it, and this file follows.
"""

from fsdp2_lab.rank import open_record, read_settings

settings = read_settings()
record = open_record(settings)

record.stage("mesh")  # notebooks/03_ranks_and_mesh.ipynb
"""Join the process group and lay the ranks out as a one-dimensional mesh."""
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

device_type = "cuda" if torch.cuda.is_available() else "cpu"
device = torch.device(device_type, int(os.environ["LOCAL_RANK"]) if device_type == "cuda" else None)
if device_type == "cuda":
    torch.cuda.set_device(device)  # before any CUDA call, which would use GPU 0

dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh(device_type, (world_size,), mesh_dim_names=("shard",))

record.stage("collectives")  # notebooks/03_ranks_and_mesh.ipynb
"""One collective of each kind, on numbers small enough to look at."""


def note(name, before, after):
    record.note(**{name: {"before": before.tolist(), "after": after.tolist()}})


piece = torch.full((2,), float(rank), device=device)  # (2,)
whole = torch.full((2 * world_size,), float(rank), device=device)  # (2N,), as a gradient of all pieces

received = piece.clone()
dist.broadcast(received, src=0)
note("broadcast", piece, received)

gathered = torch.empty_like(whole)
dist.all_gather_into_tensor(gathered, piece)
note("all-gather", piece, gathered)

reduced = torch.empty_like(piece)
dist.reduce_scatter_tensor(reduced, whole)
note("reduce-scatter", whole, reduced)

total = whole.clone()
dist.all_reduce(total)
note("all-reduce", whole, total)

exchanged = torch.empty_like(whole)
dist.all_to_all_single(exchanged, whole)
note("all-to-all", whole, exchanged)
