"""Bends a Python's surroundings before it runs anything; a test puts this folder first on PYTHONPATH.

FSDP2_LAB_BEND=clock:UNIX_SECONDS   the time of day goes back by an hour at that moment
FSDP2_LAB_BEND=disk:SECONDS         a file takes so long to be put into its place
FSDP2_LAB_BEND=host:NAME            this machine has a name that resolves nowhere
"""

import os
import socket
import time

kind, _, value = os.environ.get("FSDP2_LAB_BEND", "").partition(":")
if kind == "clock":
    time_of_day = time.time
    time.time = lambda: now - 3600 * (now >= float(value)) if (now := time_of_day()) else now
elif kind == "disk":
    replace = os.replace

    def slow_replace(*args, **kwargs):
        time.sleep(float(value))
        return replace(*args, **kwargs)

    os.replace = slow_replace
elif kind == "host":
    socket.gethostname = socket.getfqdn = lambda *_: value
