"""A torchrun script that imports nothing of ours. Rank 1 does what the command line says; rank 0 waits for it.

Every rank has a child of its own, to be cleaned up too.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

what, ready = sys.argv[1], Path(sys.argv[2])  # a folder for signs of life


def fail(value):
    return int(value)


print(f"hello from rank {os.environ['RANK']}", *sys.argv[3:], flush=True)
print(f"a word on stderr from rank {os.environ['RANK']}", file=sys.stderr, flush=True)
if what == "well":
    time.sleep(1)
    sys.exit()
if what == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
(ready / os.environ["RANK"]).touch()
if os.environ["RANK"] == "1":
    time.sleep(1)
    if what == "raise":
        fail("one and a half")
    if what == "exit":
        sys.exit(3)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
time.sleep(120)
