"""Several launches in one process, as in one kernel, with warm ranks: in_one_kernel.py WHAT FOLDER."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import psutil

from fsdp2_lab.lab.launcher import execute
from fsdp2_lab.lab.live.progress import Progress

what, folder = sys.argv[1], Path(sys.argv[2])
SLEEP, QUICK = folder / "sleep.py", folder / "quick.py"
SLEEP.write_text(
    f"import os, time\nopen({str(folder)!r} + '/reached' + os.environ['RANK'], 'w').write(str(os.getpid()))\n"
    "time.sleep(12)\n"
)
QUICK.write_text("import os\n")


def run(script: Path, progress=None):
    return execute(script, 2, [], 40, progress or Progress(), warm=True)


def server() -> psutil.Process:
    (found,) = [each for each in psutil.Process().children() if "agent.server" in " ".join(each.cmdline())]
    return found


def check(ended, status="ok") -> None:
    print(ended.status, ended.launch.cold_because, file=sys.stderr)
    assert ended.status == status, ended.failure()


if what == "stopped-server":
    check(run(QUICK))
    stopped = server()
    stopped.suspend()
    began = time.monotonic()
    check(run(QUICK))
    assert time.monotonic() - began < 35 and not stopped.is_running()
elif what == "two-threads":
    check(run(QUICK))
    first, ended = server(), []
    thread = threading.Thread(target=lambda: ended.append(run(SLEEP)))
    thread.start()
    while not (folder / "reached1").exists():
        time.sleep(0.05)
    os.environ["HF_HUB_OFFLINE"] = "1"  # asks for a new server
    check(run(QUICK))
    thread.join()
    check(ended[0])
    first.wait(3)
elif what == "killed-agent":
    check(run(QUICK))

    class KillAgent(Progress):
        def update(self):  # its first call: the agent runs, and its ranks do not yet
            for child in server().children():
                child.send_signal(signal.SIGKILL)
                break

    check(run(SLEEP, KillAgent()), "failed")
