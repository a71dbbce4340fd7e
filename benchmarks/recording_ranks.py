"""One rank of the recording benchmark: plain and recorded training steps in turn, on the embedded default.

Started by `make bench`. The model is what `launch/checkpointing.py` leaves: sharded, loaded, checkpointed.
"""

import runpy
import time
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from fsdp2_lab.rank import text_batches
from fsdp2_lab.rank.allocator import count_every_thread
from fsdp2_lab.rank.recorder import METERED_STEPS

program = runpy.run_path(str(Path(__file__).parent.parent / "launch" / "checkpointing.py"))
model, device, record = program["model"], program["device"], program["record"]
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
plain_seconds, recorded_seconds = [], []


def train_step(batch) -> float:
    inputs, targets = (tensor.to(device) for tensor in batch)
    logits = model(input_ids=inputs, use_cache=False).logits
    loss = cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def plain_step(batch) -> None:
    count_every_thread(False)
    start = time.perf_counter()
    train_step(batch)
    plain_seconds.append(time.perf_counter() - start)
    count_every_thread(True)


def in_turn(batches):
    # What runs between a yield and the next request is a recorded step with all that the recorder adds.
    for number, batch in enumerate(batches):
        if number % 2:
            plain_step(batch)
        start = time.perf_counter()
        yield batch
        recorded_seconds.append(time.perf_counter() - start)
        if number % 2 == 0:
            plain_step(batch)


settings, config = program["settings"], program["config"]
record.stage("benchmark")
for batch in record.steps(in_turn(text_batches(config, settings, program["rank"], program["world_size"]))):
    record.log(loss=train_step(batch), tokens=settings.batch * settings.seq)
record.note(plain_seconds=plain_seconds[METERED_STEPS:], recorded_seconds=recorded_seconds[METERED_STEPS:])
