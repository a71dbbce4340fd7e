"""Train under FSDP2 and compare the allocator's account with the tensors that are alive, after every step.

    allocator_truth.py SAFETENSORS_FILE REPORTS_FOLDER

The main thread and gloo's own threads both free buffers; an account that misses a free grows from step to step.
"""

import gc
import json
import sys
import warnings

import torch
import torch.distributed as dist
from accelerate import init_empty_weights
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, LlamaConfig

from fsdp2_lab.rank.allocator import AllocatorTrace, count_every_thread

STEPS = 6


def live_bytes() -> int:
    """Bytes of all storages that a tensor in this process holds, each counted once."""
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # looking at every object wakes deprecated ones
        tensors = [thing for thing in gc.get_objects() if isinstance(thing, torch.Tensor)]
    tensors += [tensor.grad for tensor in tensors if tensor.is_leaf and tensor.grad is not None]
    storages = {}
    for tensor in tensors:
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        if local.device.type == "cpu":
            storages[local.untyped_storage().data_ptr()] = local.untyped_storage().nbytes()
    return sum(storages.values())


def lap(body) -> dict:
    trace = AllocatorTrace()
    body()
    lap = trace.stop()
    return {"before": lap.bytes_before, "after": lap.bytes_after, "peak": lap.peak_bytes, "live": live_bytes()}


count_every_thread(True)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
config = LlamaConfig(
    vocab_size=384,
    hidden_size=128,
    intermediate_size=352,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    tie_word_embeddings=False,
)


def build():
    global model, optimizer
    with init_empty_weights():
        model = AutoModelForCausalLM.from_config(config)
    for block in model.model.layers:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def step():
    inputs = torch.randint(384, (2, 64))
    loss = model(input_ids=inputs, labels=inputs, use_cache=False).loss
    loss.backward()
    optimizer.step()
    if keep_gradients:
        return
    optimizer.zero_grad()


def map_file():
    global mapped
    mapped = load_file(sys.argv[1])


def unmap_file():
    global mapped
    mapped = None


def map_and_unmap_file():
    map_file()
    unmap_file()


report = {"build": lap(build)}
keep_gradients = False
report["steps"] = [lap(step) for _ in range(STEPS)]
keep_gradients = True
report["step_with_gradients_kept"] = lap(step)
optimizer.zero_grad()
report["mapped"] = [lap(body) for body in (map_and_unmap_file, map_file, unmap_file)]
with open(f"{sys.argv[2]}/rank{dist.get_rank()}.json", "w") as file:
    json.dump(report, file)
dist.destroy_process_group()
