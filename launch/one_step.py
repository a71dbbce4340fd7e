"""One step: the dtype of everything in it, and how many weights it changed.

    torchrun --standalone --nproc_per_node=2 launch/one_step.py

Written by notebooks/05_sharding.ipynb: change the cell there and run it, and this file follows.
"""

from fsdp2_lab.rank import open_record, read_settings

settings = read_settings(batch=1, seq=16, weights='random', lr=1e-05, compute_dtype='bfloat16')
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

record.stage("ways")  # notebooks/05_sharding.ipynb
"""What all ways of sharding have in common: their options, how weights get in, and a loss."""
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.nn.functional import cross_entropy

from fsdp2_lab.rank import initial_weights, text_batches

policy = MixedPrecisionPolicy(param_dtype=settings.compute_dtype, reduce_dtype=torch.float32)
options = dict(mesh=mesh, mp_policy=policy, reshard_after_forward=settings.reshard)


def load(model):
    weights = initial_weights(config, settings) if rank == 0 else {}
    how = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, weights, options=how)
    model.tie_weights()
    model.to(device)


def batches():
    return text_batches(config, settings, rank, world_size)


def loss_of(model, batch):
    inputs, targets = (each.to(device) for each in batch)
    logits = model(input_ids=inputs, use_cache=False).logits  # (batch, seq, vocab)
    return cross_entropy(logits.float().flatten(0, 1), targets.flatten())

record.stage("one_step")  # notebooks/05_sharding.ipynb
"""One step: the dtype of everything in it, and how many weights it changed."""
from torch.distributed.fsdp import fully_shard

from fsdp2_lab.rank import find_blocks

for block in find_blocks(model):
    fully_shard(block, **options)
fully_shard(model, **options)
load(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr)

name, _ = max(block.named_parameters(), key=lambda pair: pair[1].numel())
module, seen = block.get_submodule(name.rpartition(".")[0]), {}


def look(module, inputs, output):
    seen.update({"gathered copy": module.weight, "activation": output})
    module.weight.register_hook(lambda gradient: seen.update({"its gradient": gradient}))


module.register_forward_hook(look)
before = [parameter.to_local().clone() for parameter in model.parameters()]
loss_of(model, next(batches())).backward()
optimizer.step()

weight = module.weight  # sharded again
seen = {"shard": weight} | seen | {"reduced gradient": weight.grad, **optimizer.state[weight]}
record.note(dtypes={part: str(tensor.dtype) for part, tensor in seen.items() if tensor.dim()})

pairs = list(zip(model.parameters(), before, strict=True))
moved = sum((parameter.to_local() != old).sum().item() for parameter, old in pairs)
counts = torch.tensor([moved, sum(old.numel() for old in before)], device=device)
dist.all_reduce(counts)
record.note(changed=(counts[0] / counts[1]).item())
