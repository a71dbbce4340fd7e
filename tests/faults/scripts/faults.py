"""One script, many faults. Rank 1 has the fault; the other ranks wait for it in a collective, or go on alone.

    faults.py NAME FOLDER          or, where a launch passes no words on, FSDP2_LAB_FAULT=NAME:FOLDER

In FOLDER, `reached0`, `reached1` … say which rank came as far as stage `work`, with its pid in them, `fault`
when the fault came (monotonic seconds), and `left…` hold the pids of what a rank started.
"""

import atexit
import ctypes
import mmap
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

from fsdp2_lab.rank import open_record

name, folder = sys.argv[1:3] if len(sys.argv) > 2 else os.environ["FSDP2_LAB_FAULT"].split(":", 1)
folder = Path(folder)
if name == "import":
    (folder / "fault").write_text(str(time.monotonic()))
    import a_module_that_nobody_has  # noqa: F401

MIB = 2**20
ODD = b"half a line\r\x1b[31mred\x1b[0m \xff\xfe\x00 \xf0\x9f\x8e\x89 <script>alert(1)</script>\r50%\r100%"
DEAF = "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)]; time.sleep(600)"
FAULTS = {}


def fault(function):
    FAULTS[function.__name__.replace("_", "-")] = function
    return function


def own_run_dir() -> Path:
    return Path(os.environ["FSDP2_LAB_RUN_DIR"])


def spawn(sign: str, environment=None) -> None:
    child = subprocess.Popen([sys.executable, "-c", DEAF], env=environment, start_new_session=True)
    (folder / f"left-{sign}").write_text(str(child.pid))


def limit_memory() -> None:
    import resource

    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 256 * MIB, now + 256 * MIB))


@fault
def well():
    pass


@fault
def wait():
    time.sleep(600)


@fault
def exception():
    raise ValueError("boom on rank 1")


@fault
def exception_on_all():
    raise ValueError("boom on every rank")


@fault
def chained_exception():
    try:
        {}["missing"]
    except KeyError as error:
        raise ValueError("boom on rank 1") from error


@fault
def backward():
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise ValueError("boom in backward")

    Broken.apply(torch.ones(2, requires_grad=True)).sum().backward()


@fault
def thread():
    worker = threading.Thread(target=exception)
    worker.start()
    worker.join()


@fault
def exit_0():
    sys.exit(0)


@fault
def exit_0_alone():
    sys.exit(0)


@fault
def exit_3():
    sys.exit(3)


@fault
def forked_child():
    if os.fork() == 0:
        raise ValueError("a child's, and not the rank's")
    time.sleep(1)
    exception()


@fault
def own_timeout():
    raise TimeoutError("the read operation timed out")


@fault
def logs_are_pipes():
    for log in [*own_run_dir().glob("logs/torchrun.log"), *own_run_dir().glob("logs/*/attempt_0/1/stderr.log")]:
        log.unlink()
        os.mkfifo(log)
    os._exit(3)


@fault
def os_exit_0():
    os._exit(0)


@fault
def os_exit_0_alone():
    os._exit(0)


@fault
def os_exit_3():
    os._exit(3)


@fault
def sigkill():
    os.kill(os.getpid(), signal.SIGKILL)


@fault
def sigterm():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)


@fault
def sigabrt():
    os.abort()


@fault
def sigsegv():
    ctypes.string_at(0)


@fault
def sigbus():
    with tempfile.TemporaryFile(dir=folder) as file:
        file.truncate(2 * mmap.PAGESIZE)
        view = mmap.mmap(file.fileno(), 2 * mmap.PAGESIZE)
        file.truncate(0)
        view[mmap.PAGESIZE] = 1


@fault
def torch_memory():
    limit_memory()
    kept = []
    while True:
        kept.append(torch.ones(32 * MIB // 4))


@fault
def python_memory():
    limit_memory()
    kept = []
    while True:
        kept.append(bytearray(32 * MIB))


@fault
def exit_handler():
    atexit.register(exception)
    sys.exit(0)


@fault
def exit_256():
    sys.exit(256)  # of which the system keeps 0


@fault
def eats_memory():
    kept = []
    while True:
        kept.append(torch.ones(2**22))  # 16 MiB, touched


@fault
def flood():
    line = b"a line of one hundred bytes, as a training script prints when somebody forgot a print in a loop....\n"
    for descriptor in (1, 2):
        for _ in range(100):
            os.write(descriptor, line * (MIB // len(line)))
    exception()


@fault
def odd_bytes():
    for descriptor in (1, 2):
        os.write(descriptor, ODD)
    exception()


@fault
def odd_message():
    raise ValueError("\x1b[31mboom\x1b[0m \ud800 \0 🎉 <script>alert(1)</script>\rgone\nand a second line")


@fault
def long_message():
    raise ValueError("boom " * 400_000)


@fault
def closed_stdout():
    sys.stdout.close()
    os.close(2)
    exception()


@fault
def grandchildren():
    spawn("session")
    spawn("bare", {})  # nothing tells whose it is but its parent
    if os.fork() == 0:
        spawn("orphan", {})  # and nothing at all, once its parent is gone
        os._exit(0)
    time.sleep(1)
    exception()


@fault
def writes_over_records():
    for file in own_run_dir().rglob("*"):
        if file.is_file():
            file.write_bytes(b'{"schema": 1, "ran')
    exception()


@fault
def deletes_run_folder():
    shutil.rmtree(own_run_dir())
    exception()


@fault
def killed_while_writing():
    threading.Timer(1.0, sigkill).start()
    while True:
        record.note(numbers=list(range(200_000)))


@fault
def no_space():
    for _ in range(20):
        print("x" * MIB, flush=True)


@fault
def stepped_clock():
    # Rank 0 fails a second later, because of this, at a time of day that is an hour earlier.
    atexit.register(time.sleep, 2)
    atexit.register((folder / "raised").touch)
    exception()


record = open_record()
record.stage("join")
dist.init_process_group("gloo")
record.stage("work")
rank = dist.get_rank()
(folder / f"reached{rank}").write_text(str(os.getpid()))
dist.barrier()
if rank == 1 or name.endswith("-on-all"):
    (folder / "fault").write_text(str(time.monotonic()))
    FAULTS[name]()
elif name == "stepped-clock":
    while not (folder / "raised").exists():
        time.sleep(0.05)
    before = time.time
    time.time = lambda: before() - 3600
    raise RuntimeError("rank 0 follows")
if name.endswith("-alone"):
    for later in ("more", "most"):
        time.sleep(0.5)
        record.stage(later)
else:
    dist.all_reduce(torch.ones(1))
