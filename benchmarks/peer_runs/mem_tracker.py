"""torch's own FSDPMemTracker, as it comes: one fake rank, fake tensors, every layer, two steps of the same job.

A job as JSON comes as the first argument, as the second perhaps `clip`: clip gradients as our own loop does. A row as
JSON is printed. The one file on these private names.
"""

import json
import sys

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM

job, clips = json.loads(sys.argv[1]), sys.argv[2:] == ["clip"]
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=job["ranks"])
mesh = init_device_mesh("cpu", (job["ranks"],))
config = AutoConfig.for_model(**job["config"])
policy = MixedPrecisionPolicy(param_dtype=getattr(torch, job["compute_dtype"]), reduce_dtype=torch.float32)
with FakeTensorMode(allow_non_fake_inputs=True):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for block in model.model.layers:
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    if job["checkpointing"]:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    inputs, targets = (torch.zeros(job["batch"], job["seq"], dtype=torch.long) for _ in range(2))
    tracker = FSDPMemTracker(model, optimizer)
    tracker.track_inputs((inputs, targets))
    with tracker:
        for _step in range(2):  # the second has the optimizer's states
            logits = model(input_ids=inputs, use_cache=False).logits
            cross_entropy(logits.float().flatten(0, 1), targets.flatten()).backward()
            if clips:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            tracker.reset_mod_stats()
peak = tracker.get_tracker_snapshot("peak")
steps = f"two steps {'with' if clips else 'without'} clip_grad_norm_"
call = f'FSDPMemTracker(model, optimizer), {steps}, get_tracker_snapshot("peak")'
print(json.dumps({"version": torch.__version__, "call": call, "bytes": peak[torch.device("cpu")]["Total"]}))
sys.stdout.flush()
dist.destroy_process_group()
