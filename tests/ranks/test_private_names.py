"""Private names of torch, each behind one file of ours: these tests say when torch changes them."""

import inspect
import json
import subprocess
import sys

import torch
from torch.distributed import distributed_c10d
from torch.distributed.elastic.multiprocessing import api
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

from fsdp2_lab.agent.handlers import RankHandler

ONE_RANK = """
import dataclasses, json, torch, torch.distributed as dist
from fsdp2_lab.agent.stand import last_collectives
from fsdp2_lab.contract.workspace import TIMEOUT_VARIABLE
from fsdp2_lab.rank.deadline import wait_less_than_the_deadline
import os
os.environ[TIMEOUT_VARIABLE] = "100"
wait_less_than_the_deadline()
none = last_collectives()
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = dist.device_mesh.init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicate", "shard"))
dist.all_reduce(torch.ones(3))
dist.barrier()
groups = [dist.group.WORLD, mesh.get_group("shard")]
timeouts = [group._get_backend(torch.device("cpu")).options._timeout.total_seconds() for group in groups]
import time; time.sleep(0.2)  # a finished collective is marked a moment later
print(json.dumps([len(none), [dataclasses.asdict(call) for call in last_collectives()], timeouts]))
"""


def test_the_agent_starts_its_ranks_through_the_handler_that_we_replace():
    assert callable(api.get_subprocess_handler)
    assert "get_subprocess_handler(" in inspect.getsource(api.SubprocessContext)
    assert {"_popen", "close"} <= set(vars(SubprocessHandler)) & set(vars(RankHandler))
    assert list(inspect.signature(SubprocessHandler._popen).parameters) == ["self", "args", "env"]
    assert {"stdout", "stderr", "env"} <= set(inspect.signature(SubprocessHandler).parameters)


def test_collectives_and_timeouts_are_where_we_look_for_them(monkeypatch):
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "200")
    told = subprocess.run([sys.executable, "-c", ONE_RANK], capture_output=True, text=True, check=True).stdout
    before, calls, timeouts = json.loads(told)
    assert before == 0
    assert [(call["number"], call["name"], call["waiting"]) for call in calls] == [(2, "barrier", False)]
    assert timeouts == [80.0, 80.0]  # of the world, and of a mesh's group, which ignores init_process_group's own


def test_the_allocators_history_has_its_names():
    assert {"enabled", "max_entries"} <= set(inspect.signature(torch.cuda.memory._record_memory_history).parameters)
    assert next(iter(inspect.signature(torch.cuda.memory._dump_snapshot).parameters)) == "filename"


def test_the_default_timeouts_have_their_names():
    assert distributed_c10d.default_pg_timeout.total_seconds() > 0
    assert hasattr(distributed_c10d, "default_pg_nccl_timeout")
