"""The same weights with these buffers and with computed ones: what the loss says.

    torchrun --standalone --nproc_per_node=2 launch/blind.py

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

record.stage("garbage")  # notebooks/04_meta_device.ipynb
"""Build all of it on meta, give it memory, and compare its buffers with computed ones."""
from accelerate import init_empty_weights
from transformers import AutoModelForCausalLM

from fsdp2_lab.rank import model_config

config = model_config(settings)
with torch.device("meta"):
    model = AutoModelForCausalLM.from_config(config, dtype=settings.param_dtype)
model.to_empty(device=device)

with init_empty_weights():  # its parameters cost nothing, its buffers are computed
    computed = dict(AutoModelForCausalLM.from_config(config, dtype=settings.param_dtype).named_buffers())
wrong = [name for name, buffer in model.named_buffers() if not torch.equal(buffer, computed[name].to(buffer))]
record.note(wrong_buffers=wrong)

first = {"computed": computed["model.rotary_emb.inv_freq"], "here": model.model.rotary_emb.inv_freq}
record.note(inv_freq={name: " ".join(f"{number:.2g}" for number in buffer[:4]) for name, buffer in first.items()})

record.stage("blind")  # notebooks/04_meta_device.ipynb
"""The same weights with these buffers and with computed ones: what the loss says."""
from fsdp2_lab.rank import held_out_batches, held_out_loss, initial_weights


def loss():
    return held_out_loss(model, held_out_batches(config, settings, rank, world_size), device)


model.load_state_dict(initial_weights(config, settings), assign=True)
model.to(device)
losses = {"these buffers": loss()}
for name, buffer in model.named_buffers():
    buffer.copy_(computed[name])
losses["computed buffers"] = loss()
record.note(losses=losses)
