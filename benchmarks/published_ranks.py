"""A training loop with the memory-relevant habits of torchtitan in 2024, for a dry run; `published.py` plays it.

    fsdp2-lab dryrun benchmarks/published_ranks.py --ranks 8 --device cuda --model llama-2-7b --batch 8 --seq 2048

The last block is not resharded after forward, nor is the root. AdamW and clipping work on all parameters at once.
Logits are float32 and keep their name through the step, or, with `PUBLISHED_LOGITS=dropped`, are dropped before
backward. `--checkpointing true` is full; `false` is selective: of a block's operations every second matrix product,
and attention, keep their results.
"""

import os
from collections import Counter
from functools import partial

import torch
import torch.distributed as dist
from accelerate import init_empty_weights
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts, noop_context_fn
from transformers import AutoModelForCausalLM

from fsdp2_lab.rank import find_blocks, initial_weights, model_config, open_record, read_settings, text_batches

ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
}


def selective():
    """Contexts for one block: its forward, and its recomputation."""
    products = Counter()

    def policy(context, operation, *_args, **_options):
        keeps = operation in ATTENTION
        if operation is torch.ops.aten.mm.default:
            products[context.is_recompute] += 1
            keeps = products[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


settings = read_settings()
record = open_record(settings)
record.stage("model")
device_type = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh(device_type, (world_size,))
config = model_config(settings)
with init_empty_weights():
    model = AutoModelForCausalLM.from_config(config, dtype=settings.param_dtype)

policy = MixedPrecisionPolicy(param_dtype=settings.compute_dtype, reduce_dtype=torch.float32)
context_fn = noop_context_fn if settings.checkpointing else selective
blocks = find_blocks(model)
for block in blocks:
    block.forward = partial(
        checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False, context_fn=context_fn
    )
    fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=block is not blocks[-1])
fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
weights = initial_weights(config, settings) if rank == 0 else {}
set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
del weights
model.to(device_type)

record.stage("train")
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, betas=(0.9, 0.95), weight_decay=0.1, foreach=True)
for inputs, targets in record.steps(text_batches(config, settings, rank, world_size)):
    inputs, targets = inputs.to(device_type), targets.to(device_type)  # (batch, seq) each
    optimizer.zero_grad()
    if os.environ.get("PUBLISHED_LOGITS") == "dropped":
        logits = model(input_ids=inputs, use_cache=False).logits  # (batch, seq, vocab)
        loss = cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
        del logits
    else:
        logits = model(input_ids=inputs, use_cache=False).logits.float()
        loss = cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    optimizer.step()
    record.log(loss=loss.detach(), tokens=inputs.numel() * world_size)
