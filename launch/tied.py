"""Build a tied model on meta, and see whether embedding and head are one tensor, before tie_weights and after.

    torchrun --standalone --nproc_per_node=2 launch/tied.py

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

record.stage("tied")  # notebooks/04_meta_device.ipynb
"""Build a tied model on meta, and see whether embedding and head are one tensor, before tie_weights and after."""
from accelerate import init_empty_weights
from transformers import AutoModelForCausalLM

from fsdp2_lab.rank import model_config

config = model_config(settings)
with init_empty_weights():
    model = AutoModelForCausalLM.from_config(config, dtype=settings.param_dtype)


def embedding_is_head():
    return model.get_input_embeddings().weight is model.get_output_embeddings().weight


before = {"one tensor": embedding_is_head(), "parameters": sum(p.numel() for p in model.parameters())}
model.tie_weights()
after = {"one tensor": embedding_is_head(), "parameters": sum(p.numel() for p in model.parameters())}
record.note(tied={"before tie_weights": before, "after": after})
