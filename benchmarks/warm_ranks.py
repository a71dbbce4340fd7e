"""One rank of the start-up benchmark: the workbook's model as `launch/load.py` leaves it, and one training step.

Started by `make bench`. Notes when its first step was done, in unix seconds.
"""

import runpy
import time
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from fsdp2_lab.rank import text_batches

program = runpy.run_path(str(Path(__file__).parent.parent / "launch" / "load.py"))
model, device, record = program["model"], program["device"], program["record"]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

record.stage("train")
batches = text_batches(program["config"], program["settings"], program["rank"], program["world_size"])
for inputs, targets in record.steps(batches):
    logits = model(input_ids=inputs.to(device), use_cache=False).logits
    loss = cross_entropy(logits.flatten(0, 1), targets.to(device).flatten())
    loss.backward()
    optimizer.step()
    record.log(loss=loss, tokens=targets.numel())
    record.note(first_step_unix_seconds=time.time())
