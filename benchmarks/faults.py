"""What the launcher survives, how soon it says so, and what a launch costs. Writes `faults.md` beside this file.

    make bench

The faults are the tests in `tests/faults`; each reports what it measured. Launches are timed in this process, as
from a notebook's kernel that has imported `fsdp2_lab`.
"""

import inspect
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stderr
from importlib.metadata import version
from pathlib import Path
from statistics import median

import fsdp2_lab
from fsdp2_lab.lab.machine import machine

HERE = Path(__file__).parent
CHECKOUT = HERE.parent
SCRIPT = ["launch/train.py", "--steps", "10"]
PAIRS = 7
OVERHEAD_TARGET = 1.03  # a launch over plain torchrun

GROUPS = {
    "test_dying_ranks": "a rank dies: exception, exit, signal, memory",
    "test_writing_ranks": "a rank writes: floods, odd bytes, over its records",
    "test_hangs": "ranks wait for ever",
    "test_launcher_ends": "the launcher or its agent is ended",
    "test_kernels": "in a Jupyter kernel: stop, restart, kill; papermill",
    "test_surroundings": "ports, names, descriptors, clock, disks",
    "test_many_launches": "launches in a row and at once",
    "test_broken_records": "records that are not whole",
}

REPORT = """# What the launcher survives

Made by `make bench` from the tests in `tests/faults`, each a launch of real ranks. A fault is survived when
every promise holds: the launch fails in time and names the cause, nothing is left, nothing recorded is lost, and
the next launch works. Seconds to report run from the fault (for a hang, from its deadline; for a launcher that is
ended, from the signal) to the end of the launch.

| faults | tried | survived | seconds to report, median | worst | processes left | records lost |
|---|---|---|---|---|---|---|
{rows}
{fallen}
## What a launch costs

| | |
|---|---|
| plain torchrun of `{script}`, median | {plain:.2f} s |
| `launch` of the same, cold, median | {launched:.2f} s |
| launch / torchrun, median of {pairs} pairs (target {target:.2f}) | {ratio:.3f} |
| from Enter to the first line of progress, cold, median | {first_line_cold} |
| from Enter to the first stage, cold, median | {first_stage_cold} |
| from Enter to the first line of progress, warm, median | {first_line_warm} |
| from Enter to the first stage, warm, median | {first_stage_warm} |

{how}, {ranks} ranks on {cores} cores, torch {torch}, Python {python}. The faults took {minutes:.1f} minutes, two at
a time.
"""


class TimedText(io.StringIO):
    """Remembers when the first line was written, and the first that names a stage (monotonic seconds)."""

    first_line = first_stage = None

    def write(self, text: str) -> int:
        now = time.monotonic()
        self.first_line = self.first_line or now
        if "stage" in text:
            self.first_stage = self.first_stage or now
        return super().write(text)


def run_faults() -> tuple[list[dict], float]:
    """Run the suite; what each test measured, and the minutes it took."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "faults.jsonl"
        file.touch()
        environment = os.environ | {"FSDP2_LAB_FAULTS_JSON": str(file)}
        command = [sys.executable, "-m", "pytest", "tests/faults", "--faults-all", "--numprocesses", "2", "-q"]
        subprocess.run(command, cwd=CHECKOUT, env=environment)
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return rows, (time.monotonic() - began) / 60


def table(faults: list[dict]) -> str:
    """The rows of the report: one per group of faults, and their sum."""
    groups = {words: [fault for fault in faults if fault["file"] == file] for file, words in GROUPS.items()}
    return "\n".join(_row(words, group) for words, group in (*groups.items(), ("**all**", faults)))


def _row(words: str, faults: list[dict]) -> str:
    seconds = [fault["seconds_to_report"] for fault in faults if fault.get("seconds_to_report") is not None]
    cells = [
        len(faults),
        sum(fault["survived"] for fault in faults),
        f"{median(seconds):.1f}" if seconds else "–",
        f"{max(seconds):.1f}" if seconds else "–",
        sum(fault.get("processes_left", 0) for fault in faults),
        sum(fault.get("records_lost", 0) for fault in faults),
    ]
    return f"| {words} | " + " | ".join(map(str, cells)) + " |"


def time_torchrun() -> float:
    ranks = machine().default_ranks
    # What the launcher sets for speed is not what is measured here.
    same = {"OMP_NUM_THREADS": str(machine().threads_per_rank(ranks))}
    same["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", *SCRIPT]
    began = time.monotonic()
    subprocess.run(command, cwd=CHECKOUT, env=os.environ | same, check=True, capture_output=True)
    return time.monotonic() - began


def time_launch(warm: bool) -> tuple[float, float, float]:
    """Seconds of one launch from a process that has imported us: to its first line, its first stage, its end."""
    os.environ["FSDP2_LAB_WARM"] = str(int(warm))
    steps = int(SCRIPT[-1])
    began = time.monotonic()
    with redirect_stderr(TimedText()) as said:
        fsdp2_lab.launch("train", steps=steps)
    return said.first_line - began, (said.first_stage or time.monotonic()) - began, time.monotonic() - began


def time_pair(launch_first: bool) -> tuple[float, tuple[float, float, float]]:
    """Seconds of torchrun and of a cold launch, one straight after the other."""
    if launch_first:
        launched = time_launch(warm=False)
        return time_torchrun(), launched
    return time_torchrun(), time_launch(warm=False)


def main() -> None:
    os.chdir(CHECKOUT)
    report(*run_faults())


def report(faults: list[dict], minutes: float) -> None:
    """Time launches, and write what the suite measured and what they took."""
    time_launch(warm=False), time_torchrun()  # fill the disk's cache, for both
    pairs = [time_pair(launch_first=bool(pair % 2)) for pair in range(PAIRS)]
    warm = []
    if "warm" in inspect.signature(fsdp2_lab.launch).parameters:
        time_launch(warm=True)  # starts what is kept warm
        warm = [time_launch(warm=True) for _ in range(PAIRS)]
    cold = [launched for _, launched in pairs]
    ratio = median(launched[-1] / plain for plain, launched in pairs)
    fallen = [f"- {fault['file']}: {fault['name']}" for fault in faults if not fault["survived"]]
    text = REPORT.format(
        rows=table(faults),
        fallen="\nNot survived:\n\n" + "\n".join(fallen) + "\n" if fallen else "",
        script=" ".join(SCRIPT),
        plain=median(plain for plain, _ in pairs),
        launched=median(launched[-1] for launched in cold),
        pairs=PAIRS,
        target=OVERHEAD_TARGET,
        ratio=ratio,
        first_line_cold=_seconds(line for line, _, _ in cold),
        first_stage_cold=_seconds(stage for _, stage, _ in cold),
        first_line_warm=_seconds(line for line, _, _ in warm),
        first_stage_warm=_seconds(stage for _, stage, _ in warm),
        how=machine().how[0].upper() + machine().how[1:],
        ranks=machine().default_ranks,
        cores=machine().cores,
        torch=version("torch"),
        python=platform.python_version(),
        minutes=minutes,
    )
    (HERE / "faults.md").write_text(text, encoding="utf-8")
    print(text)
    if fallen or ratio > OVERHEAD_TARGET:
        raise SystemExit(f"{len(fallen)} faults not survived; a launch took {ratio:.3f} times plain torchrun")


def _seconds(values) -> str:
    values = list(values)
    return f"{median(values):.2f} s" if values else "not measured"


if __name__ == "__main__":
    main()
