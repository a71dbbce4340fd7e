"""Load a tied model without tying it again, and train one step.

    torchrun --standalone --nproc_per_node=2 launch/load_untied.py

Written by notebooks/06_loading_weights.ipynb: change the cell there and run it, and this file follows.
"""

from fsdp2_lab.rank import open_record, read_settings

settings = read_settings(model='byte-llama-tied')
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

record.stage("shard")  # notebooks/05_sharding.ipynb
"""Shard every block, then the root: each rank keeps 1/N of every parameter."""
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from fsdp2_lab.rank import find_blocks

policy = MixedPrecisionPolicy(param_dtype=settings.compute_dtype, reduce_dtype=torch.float32)
for block in find_blocks(model):
    fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=settings.reshard)
fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=settings.reshard)

shards = {name: list(parameter.to_local().shape) for name, parameter in model.named_parameters()}
record.note(shards=shards)

record.stage("load_untied")  # notebooks/06_loading_weights.ipynb
"""Load a tied model without tying it again, and train one step."""
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.nn.functional import cross_entropy

from fsdp2_lab.rank import initial_weights, text_batches

weights = initial_weights(config, settings) if rank == 0 else {}
options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
set_model_state_dict(model, weights, options=options)
model.to(device)
record.note(parameters_then=sum(parameter.numel() for parameter in model.parameters()))

embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr)
record.note(in_optimizer=sum(parameter.numel() for parameter in optimizer.param_groups[0]["params"]))
inputs, targets = next(text_batches(config, settings, rank, world_size))
logits = model(input_ids=inputs.to(device), use_cache=False).logits
cross_entropy(logits.flatten(0, 1), targets.to(device).flatten()).backward()
optimizer.step()
record.note(embedding_learns=embedding.grad is not None, head_learns=head.grad is not None)
record.note(parameters_after=sum(parameter.numel() for parameter in model.parameters()))
