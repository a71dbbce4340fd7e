"""What recording costs a training step: paired, on the embedded default. Writes `recording.md` beside this file.

    make bench

Half of the steps are plain PyTorch, half go through `record.steps` and `record.log`, in turn and in the same
process. The first two steps are metered, and are left out on both sides.
"""

import platform
from pathlib import Path
from statistics import median

import torch

from fsdp2_lab.lab.launcher import execute
from fsdp2_lab.lab.live.progress import Lines
from fsdp2_lab.lab.machine import machine

HERE = Path(__file__).parent
TARGET = 1.02  # recorded over plain
STEPS = 102

REPORT = """# What recording costs a training step

Target: a recorded step takes at most {target:.2f} times a plain one. Made by `make bench`.

| | |
|---|---|
| plain step, median | {plain:.1f} ms |
| recorded step, median | {recorded:.1f} ms |
| recorded / plain, median of {pairs} pairs | {ratio:.4f} |
| recorded / plain, sum of all steps | {total:.4f} |

{how}, {ranks} ranks on {cores} cores, torch {torch}, Python {python}. Batch 4, 128 tokens, float32,
activation checkpointing, model byte-llama.
"""


def main() -> None:
    ranks = machine().default_ranks
    run = execute(HERE / "recording_ranks.py", ranks, ["--steps", str(STEPS)], 600, Lines())
    if run.status != "ok":
        raise SystemExit(run.failure())
    plain, recorded = run.noted("plain_seconds")[0], run.noted("recorded_seconds")[0]
    ratio = median(b / a for a, b in zip(plain, recorded, strict=True))
    text = REPORT.format(
        target=TARGET,
        plain=1000 * median(plain),
        recorded=1000 * median(recorded),
        pairs=len(plain),
        ratio=ratio,
        total=sum(recorded) / sum(plain),
        how=run.how[0].upper() + run.how[1:],
        ranks=ranks,
        cores=machine().cores,
        torch=torch.__version__,
        python=platform.python_version(),
    )
    (HERE / "recording.md").write_text(text, encoding="utf-8")
    print(text)
    if ratio > TARGET:
        raise SystemExit(f"recording costs {ratio:.4f} of a plain step; the target is {TARGET}")


if __name__ == "__main__":
    main()
