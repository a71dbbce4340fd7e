"""Build a model on meta in three ways, and see where its parameters and buffers are.

    torchrun --standalone --nproc_per_node=2 launch/buffers.py

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

record.stage("buffers")  # notebooks/04_meta_device.ipynb
"""Build a model on meta in three ways, and see where its parameters and buffers are."""
from accelerate import init_empty_weights
from transformers import AutoModelForCausalLM

from fsdp2_lab.rank import model_config

config = model_config(settings)
ways = {
    "init_empty_weights()": init_empty_weights(),
    "include_buffers=True": init_empty_weights(include_buffers=True),
    'torch.device("meta")': torch.device("meta"),
}
found = {}
for way, on_meta in ways.items():
    with on_meta:
        model = AutoModelForCausalLM.from_config(config, dtype=settings.param_dtype)
    places = {"parameters": {parameter.device.type for parameter in model.parameters()}}
    places["buffers"] = {buffer.device.type for buffer in model.buffers()}
    found[way] = {kind: ", ".join(sorted(types)) for kind, types in places.items()}

kept = model.state_dict()
record.note(places=found, not_in_state_dict=[name for name, _ in model.named_buffers() if name not in kept])
