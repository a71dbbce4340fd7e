"""Load folders with load_slices, a case after another; note what each rank then holds, or the sentence it was told.

    torchrun ... slices.py CASES.json

A case: {"name", "config": folder, "folder": weights, "replicate": 1, "dtype": "float32", "strict": true, "meta": true}.
Without a config the model is `Odd`, which is no model of transformers.
"""

import hashlib
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import init_empty_weights
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoConfig, AutoModelForCausalLM

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.rank import find_blocks, load_slices, open_record

record = open_record()
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()


class Odd(nn.Module):
    """A row for one rank, a parameter under two names, a frozen one, a wrapped module, and buffers of three kinds."""

    def __init__(self):
        super().__init__()
        self.row = nn.Parameter(torch.empty(1, 5))
        self.one = nn.Parameter(torch.empty(6, 2))
        self.other = self.one
        self.frozen = nn.Linear(4, 7).requires_grad_(False)
        self.wrapped = checkpoint_wrapper(nn.Linear(4, 5))
        self.register_buffer("count", torch.empty((), dtype=torch.int64))
        self.register_buffer("table", torch.empty(3, 2))
        self.frozen.register_buffer("table", self.table)
        self.register_buffer("computed", torch.empty(2), persistent=False)


def told_of_odd(case: dict) -> dict:
    with torch.device("meta"):
        model = Odd()
    fully_shard(model)
    try:
        loaded = load_slices(model, case["folder"], torch.device("cpu"))
    except UsageError as error:
        return {"error": str(error), "on_meta": all(tensor.is_meta for tensor in model.state_dict().values())}
    parameters = {name: value.full_tensor().detach() for name, value in model.named_parameters() if not value.is_meta}
    buffers = {name: value for name, value in model.named_buffers() if not value.is_meta}
    return {
        "bytes_read": loaded.bytes_read,
        "whole": {name: digest(value) for name, value in (parameters | buffers).items()},
        "tied": model.one is model.other and model.table is model.frozen.table,
        "frozen": [name for name, parameter in model.named_parameters() if not parameter.requires_grad],
    }


def build(case: dict):
    config = AutoConfig.from_pretrained(case["config"])
    replicate = case.get("replicate", 1)
    mesh = init_device_mesh("cpu", (replicate, ranks // replicate), mesh_dim_names=("replicate", "shard"))
    if replicate == 1:
        mesh = mesh["shard"]
    torch.manual_seed(0)
    with init_empty_weights() if case.get("meta", True) else torch.device("cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, case.get("dtype", "float32")))
    model.tie_weights()
    for block in find_blocks(model):
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()


def told(case: dict) -> dict:
    if not case["config"]:
        return told_of_odd(case)
    model = build(case)
    group = model.lm_head.weight.device_mesh["shard"].get_group() if case.get("group") else None
    try:
        loaded = load_slices(model, case["folder"], torch.device("cpu"), strict=case.get("strict", True), group=group)
    except UsageError as error:
        return {"error": str(error), "on_meta": all(parameter.is_meta for parameter in model.parameters())}
    parameters = {name: parameter for name, parameter in model.named_parameters() if not parameter.is_meta}
    told = {
        "bytes_read": loaded.bytes_read,
        "missing": loaded.missing,
        "extra": loaded.extra,
        "rows": {name: len(parameter.to_local()) for name, parameter in parameters.items()},
        "whole": {name: digest(parameter.full_tensor().detach()) for name, parameter in parameters.items()},
        "buffers": {name: digest(buffer) for name, buffer in model.named_buffers()},
        "tied": model.get_input_embeddings().weight is model.get_output_embeddings().weight,
    }
    if not loaded.missing:
        loss = model(input_ids=torch.arange(3, 35)[None], labels=torch.arange(3, 35)[None]).loss
        loss.backward()
        told |= {"loss": loss.item(), "gradients": sum(p.grad is not None for p in model.parameters())}
    return told


for case in json.loads(Path(sys.argv[1]).read_text()):
    record.note(**{case["name"]: told(case)})
dist.destroy_process_group()
