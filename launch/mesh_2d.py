"""Lay the same ranks out as rows of shards, each row a replica of the model.

    torchrun --standalone --nproc_per_node=2 launch/mesh_2d.py

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

record.stage("mesh_2d")  # notebooks/03_ranks_and_mesh.ipynb
"""Lay the same ranks out as rows of shards, each row a replica of the model."""
replicas = 2 if world_size % 2 == 0 else 1
mesh_2d = init_device_mesh(device_type, (replicas, world_size // replicas), mesh_dim_names=("replicate", "shard"))

record.note(place=list(mesh_2d.get_coordinate()))
record.note(groups={name: dist.get_process_group_ranks(mesh_2d.get_group(name)) for name in mesh_2d.mesh_dim_names})
