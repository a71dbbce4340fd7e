"""Each rank leaves a deaf grandchild that nothing tells whose it is: no parent, no session, no environment of ours.

orphans.py HOW FOLDER          or FSDP2_LAB_FAULT=HOW:FOLDER; HOW is `end` or `wait`
"""

import os
import subprocess
import sys
import time
from pathlib import Path

DEAF = "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)]; time.sleep(600)"

how, folder = sys.argv[1:3] if len(sys.argv) > 2 else os.environ["FSDP2_LAB_FAULT"].split(":", 1)
folder, rank = Path(folder), os.environ["RANK"]
if os.fork() == 0:
    child = subprocess.Popen([sys.executable, "-c", DEAF], env={}, start_new_session=True)
    (folder / f"left-{rank}").write_text(str(child.pid))
    os._exit(0)
while not (folder / f"left-{rank}").exists() or not (folder / f"left-{rank}").read_text():
    time.sleep(0.02)
time.sleep(1.5)
(folder / f"reached{rank}").write_text(str(os.getpid()))
if how == "wait":
    time.sleep(600)
