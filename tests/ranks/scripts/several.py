"""Run one script several times in the same ranks, each time with its own settings and record.

A launch spends most of its seconds on imports; here they are paid for once, and the process group is joined
once. The script is unedited.

    several.py SCRIPT CASES.json

CASES.json is a list of [run folder, command line].
"""

import json
import os
import runpy
import sys
from pathlib import Path

import torch.distributed as dist

join, leave = dist.init_process_group, dist.destroy_process_group
dist.init_process_group = lambda *args, **kwargs: None if dist.is_initialized() else join(*args, **kwargs)
dist.destroy_process_group = lambda: None

script, cases = sys.argv[1], json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
for folder, argv in cases:
    os.environ["FSDP2_LAB_RUN_DIR"] = folder
    sys.argv = [script, *argv]
    runpy.run_path(script, run_name="__main__")["record"].close()
leave()
