"""Rehearsals on one GPU beside dry runs and closed forms of the same jobs. Writes `results/DEVICE.json`.

    python benchmarks/gpu_check.py [--model NAME]... [--ranks N]... [--seconds S] [--case-seconds S] [--out FOLDER]

Each case is one rank of N: `launch/train.py` on a Llama shape that fits by its account. Beside allocated bytes it shows
what comes on top: held by the allocator but not given out, and used outside it (CUDA's context and libraries); together
with what the account names, that is the O of 16P/N + 2bshL + O. A rehearsal's collectives are fake, so NCCL's buffers
are in none of it. Exits with 0 when all went well, 1 when a case failed, 2 for bad usage, 3 without a GPU.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import date
from pathlib import Path

from fsdp2_lab.contract.errors import LabError
from fsdp2_lab.contract.published import PUBLISHED
from fsdp2_lab.contract.settings import to_argv
from fsdp2_lab.contract.units import GIB
from fsdp2_lab.predict.account import account

HERE = Path(__file__).parent
TRAIN = HERE.parent / "launch" / "train.py"
MODELS = ("llama-3.2-1b", "llama-3.1-8b", "llama-3.2-3b")  # the largest is not the last: time may run out
RANKS = (1, 4, 8, 64)
JOB = {"batch": 1, "seq": 2048, "checkpointing": True}
SPARE = 1.1, 2 * GIB  # times the account, and on top of it: fragmentation, context and libraries
SHORTEST_SECONDS = 20  # with less left no case is begun
SCHEMA = 1
NO_GPU = 3

Ask = Callable[[dict, float], dict]


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line, checked; torch is not needed for it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    known = sorted(name for name in PUBLISHED if name.startswith("llama"))
    parser.add_argument("--model", action="append", choices=known, metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument("--ranks", action="append", type=_whole, metavar="N", help="may be repeated, as --model")
    parser.add_argument("--seconds", type=_whole, default=280, help="for all cases (default: 280)")
    parser.add_argument("--case-seconds", type=_whole, default=90, help="for one case (default: 90)")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder of the JSON file")
    asked = parser.parse_args(argv)
    if asked.out.exists() and not asked.out.is_dir():
        parser.error(f"--out {asked.out}: expected a folder")
    return asked


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= 10**6:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to 1,000,000")
    return int(text)


def cases(models: list[str], ranks: list[int], total_bytes: int) -> list[dict]:
    """All cases, each with its account; one that would not fit is marked `skipped`, with the reason."""
    found = []
    times, more_bytes = SPARE
    for model in models:
        for count in ranks:
            told = account(model, count, device="cuda", **JOB)
            article = {name: told.article[name] for name in ("state_bytes", "boundary_bytes", "overhead_bytes")}
            case = {"model": model, "ranks": count, **JOB, "article": article}
            case |= {"predicted_bytes": told.peak_bytes, "predicted_step0_bytes": told.step0_peak_bytes}
            need_bytes = times * max(told.peak_bytes, told.step0_peak_bytes) + more_bytes
            if need_bytes > total_bytes:
                why = f"needs about {need_bytes / GIB:.0f} GiB of {total_bytes / GIB:.0f}"
                case |= {"status": "skipped", "why": why}
            found.append(case)
    return found


def run(todo: list[dict], rehearse: Ask, dryrun: Ask, seconds: float, case_seconds: float) -> Iterator[dict]:
    """Do the cases one after another on the GPU, their dry runs beside them; yields each as it ends.

    What a case raises is its own: it is marked `failed`. One for which no time is left is marked `skipped`.
    """
    deadline = time.monotonic() + seconds
    pool = ThreadPoolExecutor(2)
    plays = [None if "status" in case else pool.submit(dryrun, case, case_seconds) for case in todo]
    for case, play in zip(todo, plays, strict=True):
        left = deadline - time.monotonic()
        if "status" not in case and left < SHORTEST_SECONDS:
            play.cancel()
            case |= {"status": "skipped", "why": f"no time left of {seconds:g} s; give more with --seconds"}
        elif "status" not in case:
            start = time.monotonic()
            try:
                case |= rehearse(case, min(left, case_seconds))
                case |= {"status": "ok"} | overhead(case)
            except Exception as error:  # one case is not to stop the others
                case |= {"status": "failed", "why": str(error)}
            case |= {"seconds": round(time.monotonic() - start, 1)} | played(play, deadline)
        yield case
    pool.shutdown(wait=False, cancel_futures=True)


def played(play: Future, deadline: float) -> dict:
    """A dry run's bytes, or why there are none."""
    try:
        return play.result(timeout=max(1.0, deadline - time.monotonic()))
    except Exception as error:  # a case without its dry run is still a case
        return {"dry_run_failed": str(error) or type(error).__name__}


def overhead(case: dict) -> dict:
    """What comes on top of allocated bytes, and the article's O as it was here."""
    article = case["article"]
    return {
        "cached_bytes": case["reserved_bytes"] - case["allocated_bytes"],
        "outside_bytes": case["used_bytes"] - case["reserved_bytes"],
        "overhead_bytes": case["used_bytes"] - article["state_bytes"] - article["boundary_bytes"],
    }


def ask_gpu(question: dict, seconds: float, environment: dict) -> dict:
    """Put a question to `gpu_check_case.py`. Raises `LabError` with its last words where it has no answer."""
    return _answer([sys.executable, str(HERE / "gpu_check_case.py"), json.dumps(question)], seconds, environment)


def dry_run(case: dict, seconds: float, environment: dict) -> dict:
    """The dry run of a case, from the command line."""
    words = to_argv({"device": "cuda"} | {name: case[name] for name in ("ranks", "model", *JOB)})
    told = _answer([sys.executable, "-m", "fsdp2_lab", "dryrun", str(TRAIN), "--json", *words], seconds, environment)
    return {"dry_run_bytes": told["peak_bytes"], "dry_run_step0_bytes": told["step0_peak_bytes"]}


def _answer(command: list[str], seconds: float, environment: dict) -> dict:
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, env=os.environ | environment, errors="replace"
        )
        told = json.loads(ended.stdout)
    except subprocess.TimeoutExpired:
        raise LabError(f"took more than {seconds:.0f} s") from None
    except ValueError:
        last = next((line for line in reversed(ended.stderr.splitlines()) if line.strip()), "it said nothing")
        raise LabError(f"ended with code {ended.returncode} ({last:.200})") from None
    if "error" in told:
        raise LabError(told["error"])
    return told


COLUMNS = ("case", "predicted", "dry run", "allocated", "off by", "off by")  # of the first two against the third
COLUMNS += ("reserved", "cached", "used", "outside", "O")
LEGEND = """GiB of one rank; allocated, reserved and used are rehearsed (CUDA). Cached is reserved less allocated: freed
blocks and fragments. Outside is used less reserved: CUDA's context and libraries. O is used less 16P/N and 2bshL; the
article gives 6.05 GiB for any job. NCCL's buffers are in none of it."""


def table(done: list[dict]) -> str:
    """A line per case, its columns aligned."""
    rows = [COLUMNS, *(row(case) for case in done)]
    whole = [line for line in rows if len(line) == len(COLUMNS)]
    widths = [
        max(len(line[0]) for line in rows),
        *(max(map(len, column)) for column in list(zip(*whole, strict=True))[1:]),
    ]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in rows)


def row(case: dict) -> tuple[str, ...]:
    name = f"{case['model']}, {case['ranks']}"
    if case["status"] != "ok":
        return name, f"{case['status']}: {case['why']}"

    def gib(field: str) -> str:
        return f"{case[field] / GIB:.2f}" if field in case else "–"

    def off(field: str) -> str:
        return f"{(case[field] / case['allocated_bytes'] - 1) * 100:+.2f} %" if field in case else "–"

    return (
        name,
        gib("predicted_bytes"),
        gib("dry_run_bytes"),
        gib("allocated_bytes"),
        off("predicted_bytes"),
        off("dry_run_bytes"),
        *(gib(field) for field in ("reserved_bytes", "cached_bytes", "used_bytes", "outside_bytes", "overhead_bytes")),
    )


def main(argv: list[str] | None = None) -> int:
    asked = parse(argv)
    from fsdp2_lab.lab.gpus.choice import taken
    from fsdp2_lab.lab.machine import machine

    if not machine().gpus:
        print("skipped: no GPU.")
        return NO_GPU
    try:
        with taken(machine(), 1, run_id="gpu-check") as environment:
            return check(asked, environment)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1


def check(asked: argparse.Namespace, environment: dict) -> int:
    """Run the cases on the GPU that `environment` shows, tell of each, write the file; the exit code."""
    start = time.monotonic()
    device = ask_gpu({}, asked.case_seconds, environment)
    print(f"{device['device']}, {device['total_bytes'] / GIB:.0f} GiB, torch {device['versions']['torch']}", flush=True)
    todo = cases(asked.model or list(MODELS), asked.ranks or list(RANKS), device["total_bytes"])
    done = []
    for case in run(
        todo,
        lambda case, seconds: ask_gpu(case, seconds, environment),
        lambda case, seconds: dry_run(case, seconds, environment),
        asked.seconds - (time.monotonic() - start),
        asked.case_seconds,
    ):
        done.append(case)
        print("  ".join(row(case)), flush=True)
    path = write(asked.out, device, done)
    print(f"\n{table(done)}\n\n{LEGEND}\nwrote {path}")
    return 1 if any(case["status"] == "failed" for case in done) else 0


def write(folder: Path, device: dict, done: list[dict]) -> Path:
    """Write the file named after the device."""
    name = "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in device["device"].lower()).split())
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    about = {"schema": SCHEMA, "date": date.today().isoformat(), **device, "cases": done}
    path.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main())
