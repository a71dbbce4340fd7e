"""Meet one fault after another in one process, each followed by a launch that goes well; print what was raised.

in_turn.py FOLDER NAME…
"""

import json
import os
import sys
import time
from pathlib import Path

from fsdp2_lab import StageFailed, launch

folder, names, told = Path(sys.argv[1]), sys.argv[2:], []


def meet(name: str) -> dict:
    for sign in folder.iterdir():
        sign.unlink()
    os.environ["FSDP2_LAB_FAULT"] = f"{name}:{folder}"
    try:
        run = launch("faults", ranks=2, timeout=60)
        raised, message = None, ""
    except StageFailed as error:
        run, raised, message = error.run, type(error).__name__, str(error)
    fault = folder / "fault"
    return {
        "name": name,
        "raised": raised,
        "message": message,
        "status": run.status,
        "error": run.error and [run.error.rank, run.error.type, run.error.message, run.error.stage],
        "seconds_to_report": time.monotonic() - float(fault.read_text()) if fault.exists() else None,
        "stages": [[row.name for row in record.stages] for record in run.records],
    }


for name in names:
    told += [meet(name), meet("well")]
print(json.dumps(told))
