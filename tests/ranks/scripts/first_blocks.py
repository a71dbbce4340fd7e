"""Forwards of several lengths with the first 0, 1, 2 and all blocks checkpointed, a stage each."""

import time
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM

from fsdp2_lab.rank import find_blocks, model_config, open_record, read_settings, text_batches

settings = read_settings()
record = open_record(settings)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
config = model_config(settings)
torch.manual_seed(0)
model = AutoModelForCausalLM.from_config(config)
blocks = find_blocks(model)
for block in blocks:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh, reshard_after_forward=True)
model.train()
inputs, _ = next(text_batches(config, settings, dist.get_rank(), dist.get_world_size()))

wrapped = 0
for count in (0, 1, 2, len(blocks)):
    for block in blocks[wrapped:count]:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    wrapped = count
    for seq in (64, 128, 256):
        some = inputs[:, :seq].contiguous()
        logits = None
        record.stage(f"first_{count}_of_{seq}")
        logits = model(input_ids=some, use_cache=False).logits
        time.sleep(0.2)  # gloo's thread may still hold a block's gathered buffer, which no one waits for
        record.stage(f"after_{count}_of_{seq}")
