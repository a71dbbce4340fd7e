"""The root first, then a block, and what torch says to that.

    torchrun --standalone --nproc_per_node=2 launch/top_down.py

Written by notebooks/05_sharding.ipynb: change the cell there and run it, and this file follows.
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

record.stage("meta")  # notebooks/04_meta_device.ipynb
"""Build the model's structure on every rank; of its parameters, no more than one is in memory at a time."""
from accelerate import init_empty_weights
from transformers import AutoModelForCausalLM

from fsdp2_lab.rank import model_config

config = model_config(settings)
with init_empty_weights():  # parameters on meta; buffers stay real, since no checkpoint holds them
    model = AutoModelForCausalLM.from_config(config, dtype=settings.param_dtype)
model.tie_weights()  # init_empty_weights made a tied weight into two

record.note(parameters=sum(parameter.numel() for parameter in model.parameters()))
record.note(buffers={name: buffer.device.type for name, buffer in model.named_buffers()})

record.stage("top_down")  # notebooks/05_sharding.ipynb
"""The root first, then a block, and what torch says to that."""
from torch.distributed.fsdp import fully_shard

from fsdp2_lab.rank import find_blocks

fully_shard(model, mesh=mesh)
try:
    fully_shard(find_blocks(model)[0], mesh=mesh)
    record.note(said="nothing")  # so it is on a single rank
except (RuntimeError, ValueError) as error:
    record.note(said=f"{type(error).__name__}: {error}")
