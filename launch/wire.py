"""Count the bytes that each collective sends over this host's loopback interface, with gloo on the CPU.

    torchrun --standalone --nproc_per_node=2 launch/wire.py

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

record.stage("wire")  # notebooks/03_ranks_and_mesh.ipynb
"""Count the bytes that each collective sends over this host's loopback interface, with gloo on the CPU."""
import psutil

group = dist.new_group(backend="gloo")
whole = torch.ones(4 * 2**20)  # 16 MiB in float32
piece = whole[: whole.numel() // world_size].clone()
whole = whole[: piece.numel() * world_size].clone()
calls = {
    "broadcast": lambda: dist.broadcast(whole, src=0, group=group),
    "all-gather": lambda: dist.all_gather_into_tensor(whole, piece, group=group),
    "reduce-scatter": lambda: dist.reduce_scatter_tensor(piece, whole, group=group),
    "all-reduce": lambda: dist.all_reduce(whole, group=group),
    "all-to-all": lambda: dist.all_to_all_single(torch.empty_like(whole), whole, group=group),
}


def sent_bytes():
    dist.barrier(group=group)
    interfaces = psutil.net_io_counters(pernic=True)
    return interfaces["lo" if "lo" in interfaces else "lo0"].bytes_sent  # of all ranks


for name, call in calls.items():
    call()  # the first one connects the ranks
    before = sent_bytes()
    for _ in range(4):
        call()
    record.note(**{name: {"whole_bytes": whole.nbytes, "sent_bytes": (sent_bytes() - before) / 4 / world_size}})
