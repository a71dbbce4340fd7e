"""Launch many times from one process, and print what the process has grown by, as JSON.

many.py NAME FOLDER LAUNCHES
"""

import json
import os
import sys

import psutil

from fsdp2_lab import launch

name, folder, launches = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.environ["FSDP2_LAB_FAULT"] = f"{name}:{folder}"
own, samples = psutil.Process(), []
for _ in range(launches):
    for sign in os.listdir(folder):
        os.unlink(os.path.join(folder, sign))
    launch("foreign_faults", ranks=2, timeout=60)
    samples.append(
        {
            "processes": len(own.children(recursive=True)),
            "threads": own.num_threads(),
            "descriptors": own.num_fds(),
            "rss_bytes": own.memory_info().rss,
            "listening_ports": sum(c.status == psutil.CONN_LISTEN for c in own.net_connections("tcp")),
        }
    )
print(json.dumps(samples))
