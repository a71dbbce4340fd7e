"""One script, many ways to wait for ever. Rank 1 is the one that is waited for.

hangs.py NAME FOLDER
"""

import os
import re
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from fsdp2_lab.rank import open_record

name, folder = sys.argv[1], Path(sys.argv[2])
record = open_record()
record.stage("join")
mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
rank, world_size = dist.get_rank(), dist.get_world_size()
record.stage("train")
(folder / f"reached{rank}").write_text(str(os.getpid()))

if name == "rank-0-state-dict":
    model = nn.Linear(8, 8)
    fully_shard(model, mesh=mesh)
    if rank == 0:  # the mistake: gathering takes every rank
        get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    dist.barrier()
if name == "another-group":
    first, _ = dist.new_group([0, 1]), dist.new_group([1, 2])
    if rank != 0:
        time.sleep(600)
    dist.all_reduce(torch.ones(4), group=first)
for _ in record.steps(range(6)):
    value = torch.ones(4)
    if name == "skips-one" and rank == 1 and len(record._record.steps) == 4:
        threading.Event().wait()
    if name == "mismatch" and rank == 1 and len(record._record.steps) == 4:
        dist.all_gather([torch.empty(4) for _ in range(world_size)], value)
    elif name == "holds-the-lock" and rank == 1:
        re.match("(a+)+$", "a" * 60 + "b")
    elif name == "lost-in-python" and rank == 1:
        while True:
            time.sleep(0.01)
    else:
        dist.all_reduce(value)
    record.log(loss=1.0, tokens=4)
