"""A script that uses its record in every way it should not, and goes on."""

import threading

import torch
from torch.profiler import ProfilerActivity, profile

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.rank import open_record

MIB = 2**20


def refused(action) -> str:
    try:
        action()
    except UsageError as error:
        return str(error)
    raise AssertionError("this should have been refused")


record = open_record()
sayings = {"open twice": refused(open_record)}

record.stage("loop")
kept = []
for batch in record.steps(range(10)):
    kept.append(torch.zeros(MIB // 4))
    sayings["stage in loop"] = refused(lambda: record.stage("inner"))
    record.log(loss=torch.tensor(1.5, requires_grad=True), tokens=4)
    if batch == 4:
        break
sayings["log outside"] = refused(lambda: record.log(loss=1.0, tokens=1))

record.stage("after")
sayings["stage twice"] = refused(lambda: record.stage("loop"))
sayings["note a tensor"] = refused(lambda: record.note(mean=torch.zeros(2)))
worker = threading.Thread(target=lambda: kept.append(torch.zeros(8 * MIB // 4)))
worker.start()
worker.join()

record.stage("profiled")
with profile(activities=[ProfilerActivity.CPU]):
    torch.ones(4) + 1

record.stage("last")
record.note(sayings=sayings)
raise ValueError("at the end, with 13 MiB alive")
