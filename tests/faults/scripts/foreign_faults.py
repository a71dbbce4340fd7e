"""A torchrun script that imports nothing of ours, and not even torch unless it must. Rank 1 has the fault.

foreign_faults.py NAME FOLDER          or FSDP2_LAB_FAULT=NAME:FOLDER
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

name, folder = sys.argv[1:3] if len(sys.argv) > 2 else os.environ["FSDP2_LAB_FAULT"].split(":", 1)
folder, rank = Path(folder), int(os.environ["RANK"])
DEAF = "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)]; time.sleep(600)"


def meet(what: str) -> None:
    """Wait until every rank has come to a place."""
    (folder / f"{what}{rank}").write_text(str(os.getpid()))
    while len(list(folder.glob(f"{what}*"))) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.02)


def fail(value):
    return int(value)


print(f"hello from rank {rank}", flush=True)
print(f"a word on stderr from rank {rank}", file=sys.stderr, flush=True)
if name == "left-in-collective":
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
if name in ("wait", "deaf"):
    if name == "deaf":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", DEAF], start_new_session=True)
    (folder / f"left-{rank}").write_text(str(child.pid))
meet("reached")
if name in ("well", "deleted"):
    if name == "deleted" and rank == 1:
        Path(__file__).unlink()
    time.sleep(0.2)
    sys.exit()
if rank == 1:
    (folder / "fault").write_text(str(time.monotonic()))
    if name == "exception":
        fail("one and a half")
    if name == "exit-3":
        sys.exit(3)
    if name == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "silent":
        os.close(1)
        os.close(2)
        sys.exit(1)
    if name == "left-in-collective":
        sys.exit(0)
    if name == "closes-descriptors":
        os.closerange(3, 1024)
        time.sleep(1)
        fail("one and a half")
if name == "left-in-collective":
    dist.all_reduce(torch.ones(1))
time.sleep(600)
