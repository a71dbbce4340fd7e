"""One launch from a process of its own, as a kernel would: launch_one.py SCRIPT warm|cold TIMEOUT."""

import sys
from pathlib import Path

from fsdp2_lab.lab.launcher import execute
from fsdp2_lab.lab.live.progress import Progress

run = execute(Path(sys.argv[1]), 2, [], float(sys.argv[3]), Progress(), warm=sys.argv[2] == "warm")
print(run.status, run.launch.cold_because, file=sys.stderr)
if run.status != "ok":
    print(run.failure(), file=sys.stderr)
sys.exit(run.status != "ok")
