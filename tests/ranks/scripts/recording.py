"""A script with two lines of ours, in which rank 1 fails and rank 0 waits for it in a collective."""

import sys

import torch
import torch.distributed as dist

from fsdp2_lab.rank import open_record

record = open_record()
record.stage("join")
dist.init_process_group("gloo")
record.stage("work")
if dist.get_rank() == 1:
    if sys.argv[1] == "raise":
        raise ValueError("boom on rank 1")
    sys.exit(3)
dist.all_reduce(torch.ones(1))
