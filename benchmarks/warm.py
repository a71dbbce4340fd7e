"""From Enter to the first training step, with cold and with warm ranks; and what 200 launches leave behind.

    make bench

Writes `warm.md` beside this file. Launches are made from this process, as from a notebook's kernel. Cold and warm
ones take turns; the first warm one, which waits for the server's imports, is not counted.
"""

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median

import psutil

from fsdp2_lab.lab.launcher import execute
from fsdp2_lab.lab.live.progress import Progress
from fsdp2_lab.lab.machine import machine

HERE = Path(__file__).parent
PAIRS = 5
TARGET_SECONDS = {2: 1.0, 4: 2.0}
LAUNCHES = 200
MIB = 2**20

REPORT = """# What a warm start saves

Made by `make bench`. Seconds from the call to the end of the first training step on every rank, the workbook's
model with its pretrained weights, batch 1, 128 tokens; median of {pairs}.

| ranks | cold | warm | target, warm | losses equal to the bit |
|---|---|---|---|---|
{rows}

The first warm launch of a kernel waits for the server's imports where they are not done yet: {ready:.1f} s here.

| after launch | kernel: resident MiB, descriptors, threads | server: the same | processes left |
|---|---|---|---|
{growth}

{launches} warm launches in a row of two ranks that print a line, {seconds:.2f} s each, median.

{how}, {cores} cores, torch {torch}, Python {python}.
"""


def first_step(ranks: int, warm: bool) -> tuple[float, list[float]]:
    """Seconds until the slowest rank had done its first step, and the losses."""
    began = time.time()
    run = execute(HERE / "warm_ranks.py", ranks, ["--steps", "1", "--batch", "1"], 300, Progress(), warm=warm)
    if run.status != "ok" or (warm and run.launch.cold_because):
        raise SystemExit(run.launch.cold_because or run.failure())
    return max(run.noted("first_step_unix_seconds").values()) - began, run.losses


def row(ranks: int) -> str:
    first_step(ranks, True)
    pairs = [(first_step(ranks, False), first_step(ranks, True)) for _ in range(PAIRS)]
    cold, warm = (median(each[side][0] for each in pairs) for side in (0, 1))
    equal = "yes" if all(a[1] == b[1] for a, b in pairs) else "NO"
    return f"| {ranks} | {cold:.2f} s | {warm:.2f} s | {TARGET_SECONDS[ranks]:.1f} s | {equal} |"


def held(process: psutil.Process) -> str:
    return f"{process.memory_info().rss / MIB:.0f}, {process.num_fds()}, {process.num_threads()}"


def main() -> None:
    began = time.time()
    script = HERE / "warm_line.py"
    execute(script, 2, [], 60, Progress(), warm=True)
    ready = time.time() - began
    rows = "\n".join(row(ranks) for ranks in TARGET_SECONDS)
    me, growth, seconds = psutil.Process(), [], []
    (server,) = me.children()
    for number in range(1, LAUNCHES + 1):
        began = time.time()
        run = execute(script, 2, [], 60, Progress(), warm=True)
        seconds.append(time.time() - began)
        if run.status != "ok" or run.launch.cold_because:
            raise SystemExit(run.launch.cold_because or run.failure())
        if number in (1, 10, LAUNCHES // 2, LAUNCHES):
            left = len(me.children(recursive=True)) - 1
            growth.append(f"| {number} | {held(me)} | {held(server)} | {left} |")
    text = REPORT.format(
        pairs=PAIRS,
        rows=rows,
        ready=ready,
        growth="\n".join(growth),
        launches=LAUNCHES,
        seconds=median(seconds),
        how=machine().how[0].upper() + machine().how[1:],
        cores=machine().cores,
        torch=version("torch"),
        python=platform.python_version(),
    )
    (HERE / "warm.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    os.environ.setdefault("FSDP2_LAB_HOME", str(HERE.parent))
    main()
