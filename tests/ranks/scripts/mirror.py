"""Notes all that a script can see of how it was started."""

import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

from fsdp2_lab.rank import open_record

record = open_record()
record.stage("look")
dist.init_process_group("gloo")
torch.manual_seed(0)
signals = {int(number): str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)}
record.note(
    environment=dict(os.environ),
    argv=sys.argv,
    path=sys.path,
    name=__name__,
    file=__file__,
    main_is_here=sys.modules["__main__"].__dict__ is globals(),
    directory=os.getcwd(),
    threads=torch.get_num_threads(),
    interop_threads=torch.get_num_interop_threads(),
    own_session=os.getsid(0) == os.getpid(),
    umask=os.umask(0o022),
    signals=signals,
    python_threads=sorted(thread.name for thread in threading.enumerate()),
    random=torch.rand(4).tolist(),
    matmul=torch.mm(torch.rand(64, 64), torch.rand(64, 64)).sum().item(),
    flags=[sys.flags.safe_path, sys.stdout.write_through, sys.stdout.encoding, sys.stdin.read()],
    files=[os.path.basename(os.readlink(f"/proc/self/fd/{number}")) for number in range(3)],
)
print("a line on stdout")
print("a line on stderr", file=sys.stderr)
if sys.argv[1] == "fail" and os.environ["RANK"] == "1":
    raise ValueError("boom")
if sys.argv[1] == "hold":
    while not os.path.exists(os.path.join(os.environ["FSDP2_LAB_RUN_DIR"], "go")):
        time.sleep(0.05)
if sys.argv[1] == "wait":
    time.sleep(100)
dist.barrier()
