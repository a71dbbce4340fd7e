"""Build a model with the argument's old name.

    torchrun --standalone --nproc_per_node=2 launch/old_name.py

Written by notebooks/04_meta_device.ipynb: change the cell there and run it, and this file follows.
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

record.stage("old_name")  # notebooks/04_meta_device.ipynb
"""Build a model with the argument's old name."""
from transformers import AutoModelForCausalLM

from fsdp2_lab.rank import model_config

model = AutoModelForCausalLM.from_config(model_config(settings), torch_dtype=torch.bfloat16)
record.note(dtype=str(next(model.parameters()).dtype))
