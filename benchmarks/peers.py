"""What others predict for two jobs, beside what we do. Writes `peers.md` beside this file.

    python benchmarks/peers.py [--python OTHER]... [--cookbook FOLDER] [--only NAME]... [--table]

A peer that this Python lacks is looked for in the Pythons that `--python` names; `peer_runs/` holds what each is asked
to do. Every row is kept in `results/peers.json`, so a peer that is not installed keeps the row of an earlier run, with
its date. `--table` runs nothing and writes the table again.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path

from peer_list import JOBS, OURS, PEERS, Job, Peer

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.settings import to_argv
from fsdp2_lab.predict.account import account

HERE = Path(__file__).parent
TRAIN = HERE.parent / "launch" / "train.py"
ROWS = HERE / "results" / "peers.json"
TABLE = HERE / "peers.md"
SECONDS = 600  # for one peer and one job
REPORT = """# What others predict for the same job

One rank's peak in a training step with AdamW, sharded over N ranks, without activation checkpointing and with it on
every layer. Made by `python benchmarks/peers.py`; a row's date says when it was run, and rows are kept in
`results/peers.json`. Nothing is tuned: each peer is asked as its documentation says, with the job's own numbers.
Seconds are a whole process's, start and imports included, on {cores} cores. Versions of our own rows are the
workbook's. In brackets: how far off the measurement.

{tables}
## How each was asked

{asked}
"""


def key(row: dict) -> tuple:
    """What a row is of: there is one for each."""
    return row["job"], row["checkpointing"], row["peer"]


def ours(job: Job, checkpointing: bool) -> list[dict]:
    """Our own rows for a job, and on a CPU the measurement."""
    from fsdp2_lab.predict.dryrun import dryrun_script

    settings = job.settings(checkpointing)
    start = time.perf_counter()
    closed = account(job.model, job.ranks, device=job.device, **settings)
    seconds = time.perf_counter() - start
    words = f"--ranks {job.ranks} {' '.join(to_argv(settings))}"
    dry = dryrun_script(TRAIN, job.ranks, to_argv({"model": job.model, **settings}), job.device)
    rows = [
        ("fsdp2-lab dryrun", f"fsdp2-lab dryrun launch/train.py --device {job.device} --model {job.model} {words}",
         dry.peak_bytes, dry.seconds),
        ("fsdp2-lab account", f"fsdp2-lab account {job.model} --device {job.device} {words}", closed.peak_bytes,
         seconds),
        ("the article, 16P/N + 2bshL + O", f"fsdp2-lab account {job.model} {words}", closed.article["peak_bytes"],
         None),
    ]  # fmt: skip
    if job.device == "cpu":
        rows.append(measured(job, settings))
    names = ("peer", "call", "bytes", "seconds")
    return [dict(zip(names, row, strict=True)) | {"version": version("fsdp2-lab")} for row in rows]


def measured(job: Job, settings: dict) -> tuple[str, str, int, float]:
    from fsdp2_lab.lab.launcher import execute
    from fsdp2_lab.lab.live.progress import Lines

    argv = to_argv({"model": job.model, "weights": "random", "steps": 2, **settings})
    run = execute(TRAIN, job.ranks, argv, SECONDS, Lines())
    if run.status != "ok":
        raise SystemExit(run.failure())
    peak = min(record.steps[1].peak_bytes for record in run.records)
    return "measured (CPU)", f"fsdp2-lab run launch/train.py --ranks {job.ranks} {' '.join(argv)}", peak, None


def ask(peer: Peer, job: Job, checkpointing: bool, pythons: list[str], cookbook: Path | None) -> dict:
    """A peer's row for a job. Raises `UsageError` where it is not installed, or fails."""
    if not peer.package:
        if not cookbook:
            raise UsageError(f"not run: {peer.name} is not installed; {peer.install}.")
        python, more = sys.executable, [str(cookbook)]
    else:
        python, more = next((python for python in pythons if has(python, peer.package)), ""), peer.more
        if not python:
            raise UsageError(f"not run: {peer.package} is not installed; {peer.install}.")
    command = [python, HERE / "peer_runs" / peer.script, json.dumps(job.spec(checkpointing)), *more]
    start = time.perf_counter()
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        row = json.loads(ended.stdout)
    except subprocess.TimeoutExpired:
        raise UsageError(f"not run: {peer.name} took more than {SECONDS} s.") from None
    except ValueError:
        last = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise UsageError(f"not run: {peer.name} failed ({last:.200}).") from None
    return {"peer": peer.name, **row, "seconds": time.perf_counter() - start}


def has(python: str, package: str) -> bool:
    """Whether a Python finds a package."""
    line = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    return subprocess.run([python, "-c", line], capture_output=True).returncode == 0


def render(rows: list[dict]) -> str:
    """The report for the rows of `results/peers.json`."""
    names = [*OURS, *(peer.name for peer in PEERS)]
    found = {key(row): row for row in rows}
    tables = "\n".join(table(job, names, found) for job in JOBS)
    about = OURS | {peer.name: (peer.counts, peer.lacks) for peer in PEERS}
    asked = []
    for name in names:
        calls = {found[of]["call"]: None for job in JOBS if (of := (job.model, True, name)) in found}
        lines = "\n".join(f"    {call}" for call in calls)
        counts, lacks = about[name]
        asked.append(f"**{name}** counts {counts}. Not in it: {lacks}.\n\n{lines}\n" if calls else "")
    return REPORT.format(
        tables=tables,
        cores=" or ".join(sorted({str(row["cores"]) for row in rows})),
        asked="\n".join(filter(None, asked)).rstrip(),
    )


def table(job: Job, names: list[str], found: dict) -> str:
    unit, size = job.unit
    truth = {checked: found.get((job.model, checked, "measured (CPU)")) for checked in (False, True)}
    lines = [
        f"## {job.title}\n",
        f"| predictor | version | no checkpointing, {unit} | checkpointing, {unit} | seconds | date |",
        "|---|---|---|---|---|---|",
    ]
    for name in names:
        pair = {checked: found.get((job.model, checked, name)) for checked in (False, True)}
        if not (row := pair[True]):
            continue
        cells = [cell(pair[checked], truth[checked], size) for checked in (False, True)]
        seconds = "" if row["seconds"] is None else f"{row['seconds']:.1f}" if row["seconds"] > 0.1 else "under 0.1"
        lines.append(f"| {name} | {row['version']} | {' | '.join(cells)} | {seconds} | {row['date']} |")
    return "\n".join(lines) + "\n"


def cell(row: dict | None, truth: dict | None, size: int) -> str:
    if not row:
        return ""
    text = f"{row['bytes'] / size:,.2f}"
    if truth and row is not truth:
        text += f" ({round((row['bytes'] / truth['bytes'] - 1) * 100, 1) + 0:+,.1f} %)"  # + 0: no minus before 0.0
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    names = ["fsdp2-lab", *(peer.name for peer in PEERS)]
    parser.add_argument("--python", action="append", default=[], help="another Python to look for peers in")
    parser.add_argument("--cookbook", type=Path, help="a checkout of EleutherAI's cookbook")
    parser.add_argument("--only", action="append", choices=names, help="run this one; may be repeated")
    parser.add_argument("--table", action="store_true", help="run nothing, write the table again")
    asked = parser.parse_args()
    rows = {key(row): row for row in json.loads(ROWS.read_text(encoding="utf-8"))} if ROWS.exists() else {}
    wanted = set() if asked.table else set(asked.only or names)
    for job in JOBS:
        for checkpointing in (False, True):
            new = ours(job, checkpointing) if "fsdp2-lab" in wanted else []
            for peer in [peer for peer in PEERS if peer.name in wanted]:
                try:
                    new.append(ask(peer, job, checkpointing, [sys.executable, *asked.python], asked.cookbook))
                except UsageError as error:
                    wanted.remove(peer.name)  # nor for the other jobs
                    kept = sorted({row["date"] for row in rows.values() if row["peer"] == peer.name})
                    print(error, f"Its rows of {', '.join(kept)} stay." if kept else "", flush=True)
            for row in new:
                row |= {"job": job.model, "checkpointing": checkpointing}
                row |= {"date": date.today().isoformat(), "cores": os.cpu_count()}
                rows[key(row)] = row
                print(f"{job.model}, checkpointing {checkpointing}, {row['peer']}: {row['bytes']:,} bytes", flush=True)
    rows = [rows[name] for name in sorted(rows)]
    ROWS.parent.mkdir(exist_ok=True)
    ROWS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    TABLE.write_text(render(rows), encoding="utf-8")
    print(f"wrote {TABLE.name}")


if __name__ == "__main__":
    main()
