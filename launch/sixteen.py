"""One AdamW step on one weight in two dtypes: the bytes of each of its numbers, and how many of them moved.

    torchrun --standalone --nproc_per_node=2 launch/sixteen.py

Written by notebooks/01_where_memory_goes.ipynb: change the cell there and run it, and this file follows.
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

record.stage("sixteen")  # notebooks/01_where_memory_goes.ipynb
"""One AdamW step on one weight in two dtypes: the bytes of each of its numbers, and how many of them moved."""
bytes_each, moved = {}, {}
for dtype in (torch.float32, torch.bfloat16):
    torch.manual_seed(settings.seed)
    weight = torch.nn.Parameter(0.02 * torch.randn(1024, 1024, dtype=dtype, device=device))
    before = weight.detach().clone()
    optimizer = torch.optim.AdamW([weight], lr=1e-5)
    weight.square().sum().backward()
    optimizer.step()
    name = str(dtype).removeprefix("torch.")
    tensors = {"weight": weight, "grad": weight.grad, **optimizer.state[weight]}
    bytes_each[name] = {key: tensor.nbytes // weight.numel() for key, tensor in tensors.items() if tensor.dim() == 2}
    moved[name] = (weight != before).float().mean().item()
record.note(bytes_each=bytes_each, moved=moved)
