"""Peaks of real training steps on rank 0 of N, in one process: the collectives are fake, the allocations real.

    python traced_steps.py CASES.json

Prints one JSON list: for each case, its highest bytes in step 0 and in step 1, less what was there before the model.
The loop is launch/train.py's; gloo's copies, which the fake group does not make, are made here.
"""

import gc
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM

from fsdp2_lab.rank import find_blocks
from fsdp2_lab.rank.allocator import AllocatorTrace, count_every_thread


def copying(collective):
    """As gloo: a collective takes one more buffer, of the size of its larger tensor."""

    def call(*args, **kwargs):
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        copy = torch.empty_like(max(tensors, key=torch.Tensor.numel))
        try:
            return collective(*args, **kwargs)
        finally:
            del copy

    return call


for name in ("all_gather_single", "reduce_scatter_single", "all_gather_into_tensor", "reduce_scatter_tensor"):
    if hasattr(dist, name):
        setattr(dist, name, copying(getattr(dist, name)))


def sharded_model(case):
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=case["ranks"])
    mesh = init_device_mesh("cpu", (case["ranks"],), mesh_dim_names=("shard",))
    config = AutoConfig.for_model(**case["config"])
    model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, case.get("param_dtype", "float32")))
    compute_dtype = getattr(torch, case.get("compute_dtype", "float32"))
    policy = MixedPrecisionPolicy(param_dtype=compute_dtype, reduce_dtype=torch.float32)
    blocks = [] if case.get("granularity") == "model" else find_blocks(model)
    for module in [*blocks, model]:
        fully_shard(module, mesh=mesh, mp_policy=policy, reshard_after_forward=case.get("reshard", True))
    if case.get("checkpointing", True):
        model.activation_checkpointing_enable({"use_reentrant": False})
    return model.train(), config.vocab_size


def peaks(case) -> list[int]:
    gc.collect()
    before = AllocatorTrace().stop().bytes_after
    model, vocabulary = sharded_model(case)
    foreach = case.get("foreach")
    if case.get("optimizer") == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=foreach)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=foreach, fused=case.get("fused"))
    found = []
    for _ in range(2):
        inputs, targets = (torch.randint(vocabulary, (case["batch"], case["seq"])) for _ in range(2))
        trace = AllocatorTrace()
        tokens = (targets != -100).sum()
        logits = model(input_ids=inputs, use_cache=False).logits
        loss_sum = cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="sum")
        (loss_sum * case["ranks"] / tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        found.append(trace.stop().peak_bytes - before)
    dist.destroy_process_group()
    return found


torch.set_num_threads(1)
count_every_thread(True)
cases = json.loads(Path(sys.argv[1]).read_text())
print(json.dumps([peaks(case) for case in cases]))
