"""Load several models as the workbook does, and write each as a Hugging Face folder.

as_folder.py SCRIPT CASES.json

CASES.json is a list of [run folder, target folder, command line]; SCRIPT ends with a sharded `model`.
"""

import json
import os
import runpy
import sys
from pathlib import Path

import torch.distributed as dist

from fsdp2_lab.rank import pretrained, save_pretrained

join = dist.init_process_group
dist.init_process_group = lambda *args, **kwargs: None if dist.is_initialized() else join(*args, **kwargs)
pretrained.FILE_BYTES = 100_000  # so that there are several files

script, cases = sys.argv[1], json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
for folder, target, argv in cases:
    os.environ["FSDP2_LAB_RUN_DIR"] = folder
    sys.argv = [script, *argv]
    names = runpy.run_path(script, run_name="__main__")
    save_pretrained(names["model"], target)
    names["record"].close()
