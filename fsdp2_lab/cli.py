"""The command line: `fsdp2-lab` runs scripts, predicts their memory, lists runs, executes the series."""

import argparse
import json
import os
import signal
import sys
from pathlib import Path

from .cli_compare import add_compare
from .contract.errors import LabError, StageInterrupted, UsageError
from .predict.command import add_account

_EXIT_CODES = {"ok": 0, "failed": 1, "timeout": 124, "interrupted": 130}
_USAGE_EXIT_CODE = 2


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code: 0 ok, 1 failed, 2 bad usage, 124 timeout, 130 interrupted."""
    # A scheduler's kill and a closed terminal are cleaned up after as Ctrl-C is; nohup has SIGHUP ignored.
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is signal.SIG_DFL:
            signal.signal(ending, signal.default_int_handler)
    parser = _parser()
    asked, rest = parser.parse_known_args(argv)
    if rest and asked.command not in ("run", "dryrun", "rehearse", "compare"):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    rest = rest[1:] if rest[:1] == ["--"] else rest
    try:
        return asked.action(asked, rest)
    except UsageError as error:
        print(error, file=sys.stderr)
        return _USAGE_EXIT_CODE
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:  # `… | head`: nobody reads on, and nothing is to be said of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _EXIT_CODES["interrupted"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fsdp2-lab",
        description="Run FSDP2 Lab's scripts and notebooks, and read their records.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    doctor = commands.add_parser("doctor", help="what this machine offers, and whether versions are in range")
    doctor.add_argument("--json", action="store_true")
    doctor.set_defaults(action=_doctor)

    run = commands.add_parser(
        "run",
        help="run a script under torchrun and keep a record",
        usage="fsdp2-lab run SCRIPT [--ranks N] [--timeout SECONDS] [--gpus N,N] [--wait SECONDS] [--snapshot] "
        "[--json] [settings of the script]",
        epilog="The settings of a workbook script: python launch/train.py --help",
        allow_abbrev=False,
    )
    run.add_argument("script", type=Path, help="any torchrun script, as launch/train.py")
    run.add_argument("--ranks", type=int, help="number of ranks (default: the GPUs, or 2 on a CPU)")
    run.add_argument("--timeout", type=float, help="seconds until every rank is ended (default: 600)")
    run.add_argument("--gpus", metavar="N,N", help="the GPUs to take, as nvidia-smi numbers them (default: the freest)")
    run.add_argument("--wait", type=float, default=0, metavar="SECONDS", help="wait for GPUs that others hold")
    run.add_argument("--snapshot", action="store_true", help="keep the CUDA allocator's history, for torch's viewer")
    run.add_argument("--json", action="store_true", help="print one JSON object and nothing else on stdout")
    run.set_defaults(action=_run)

    _predictions(commands)

    runs = commands.add_parser("runs", help="list earlier runs, or show one")
    runs.add_argument("id", nargs="?")
    runs.add_argument("--json", action="store_true")
    runs.add_argument("--figure", metavar="FILE", help="draw who holds what through a step of the run, as .png or .svg")
    runs.set_defaults(action=_runs)

    add_account(commands)
    add_compare(commands)

    notebooks = commands.add_parser("notebooks", help="execute the series with papermill")
    notebooks.add_argument("--only", action="append", metavar="NN", help="a chapter's number; may be repeated")
    notebooks.add_argument("-p", "--parameter", action="append", default=[], metavar="NAME=VALUE")
    notebooks.add_argument("--in-place", action="store_true", help="keep outputs in notebooks/, not in runs/notebooks/")
    notebooks.set_defaults(action=_notebooks)

    progress = commands.add_parser("progress", help="the exercises that you have answered")
    progress.add_argument("chapter", nargs="?", metavar="NN", help="a chapter's number (default: all)")
    progress.add_argument("--reset", action="store_true", help="forget them")
    progress.set_defaults(action=_progress)
    return parser


def _predictions(commands) -> None:
    for name, text, action in (
        ("dryrun", "one rank's memory, byte by byte, from the script itself with nothing allocated", _dryrun),
        ("rehearse", "one real process plays rank 0 of N; its allocator's peaks", _rehearse),
    ):
        command = commands.add_parser(
            name,
            help=text,
            usage=f"fsdp2-lab {name} SCRIPT --ranks N "
            + "[--device cpu|cuda] [--full-depth] " * (name == "dryrun")
            + "[--timeout SECONDS] [--json] [settings of the script]",
            allow_abbrev=False,
        )
        command.add_argument("script", type=Path, help="a stage script that trains, as launch/train.py")
        command.add_argument("--ranks", type=int, required=True)
        if name == "dryrun":
            command.add_argument("--device", default="auto", help="whose kernels to suppose (default: this machine's)")
            command.add_argument("--full-depth", action="store_true", help="play every layer, extend nothing")
        command.add_argument("--timeout", type=float, help="seconds until it is ended (default: 600)")
        command.add_argument("--json", action="store_true", help="print one JSON object and nothing else on stdout")
        command.set_defaults(action=action)


def _doctor(asked, _rest) -> int:
    from .lab.doctor import doctor

    report = doctor()
    print(json.dumps(report.to_json(), indent=1) if asked.json else report)
    return 0 if report.ok else 1


def _run(asked, rest) -> int:
    from .lab.gpus.choice import parse_gpus
    from .lab.launcher import TIMEOUT_SECONDS, execute
    from .lab.live.progress import make_progress

    timeout = TIMEOUT_SECONDS if asked.timeout is None else asked.timeout
    gpus = None if asked.gpus is None else parse_gpus(asked.gpus)
    try:
        run = execute(
            asked.script,
            asked.ranks,
            rest,
            timeout,
            make_progress(),
            gpus=gpus,
            wait=asked.wait,
            snapshot=asked.snapshot,
        )
    except StageInterrupted as interrupt:
        run = interrupt.run
    if asked.json:
        print(json.dumps(run.to_json(), indent=1))
    elif run.status == "ok":
        # On one terminal the progress has said the first line, which is the summary.
        seen = sys.stdout.isatty() and sys.stderr.isatty()
        print(str(run).partition("\n")[2] if seen else run)
    if run.status != "ok":
        print(run.failure(), file=sys.stderr)
    return _EXIT_CODES[run.status]


def _dryrun(asked, rest) -> int:
    from .predict.dryrun import dryrun_script
    from .predict.process import TIMEOUT_SECONDS

    timeout = TIMEOUT_SECONDS if asked.timeout is None else asked.timeout
    return _tell(asked, dryrun_script(asked.script, asked.ranks, rest, asked.device, asked.full_depth, timeout))


def _rehearse(asked, rest) -> int:
    from .predict.process import TIMEOUT_SECONDS
    from .predict.rehearse import rehearse_script

    timeout = TIMEOUT_SECONDS if asked.timeout is None else asked.timeout
    return _tell(asked, rehearse_script(asked.script, asked.ranks, rest, timeout))


def _tell(asked, prediction) -> int:
    print(json.dumps(prediction.to_json(), indent=1) if asked.json else prediction)
    return 0


def _runs(asked, _rest) -> int:
    from .lab.runs import Run, runs

    if asked.figure and asked.id is None:
        raise UsageError("--figure draws one run: give its id, as `fsdp2-lab runs` lists them.")
    if asked.id is not None:
        run = Run.open(asked.id)
        if asked.figure:
            from .show import who_holds_what

            picture = who_holds_what(run)
            picture.savefig(asked.figure)
            print(picture)
            return 0
        print(json.dumps(run.to_json(), indent=1) if asked.json else run)
        if not asked.json and run.status not in ("ok", "running"):
            print(f"\n{run.failure()}")
        return 0
    listed = runs()
    if asked.json:
        print(listed.to_json(orient="records", indent=1))
    else:
        columns = ["id", "status", "ranks", "seconds", "command"]  # --json has them all
        print("no runs yet" if listed.empty else listed[columns].to_string(index=False, na_rep="–"))
    return 0


def _notebooks(asked, _rest) -> int:
    from .lab.notebooks import execute_series

    return 0 if execute_series(asked.only, asked.parameter, asked.in_place) else 1


def _progress(asked, _rest) -> int:
    from .learn import progress, reset

    if asked.reset:
        reset(asked.chapter)
    print(progress(asked.chapter))
    return 0
