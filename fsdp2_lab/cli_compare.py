"""`fsdp2-lab compare`: its arguments, and what it prints."""

import argparse
import json
from pathlib import Path

from .contract.errors import StageFailed, UsageError

_WAYS = {"predicted": "predicted", "dryrun": "dry run", "rehearsed": "rehearsed", "measured": "measured"}


def add_compare(commands) -> None:
    """Add the command to a parser's subcommands."""
    parser = commands.add_parser(
        "compare",
        help="one job's memory predicted, dry-run, rehearsed and measured, side by side",
        usage="fsdp2-lab compare SCRIPT [--ranks N] [--ways WAY,WAY] [--timeout SECONDS] [--figure FILE] [--json] "
        "[settings of the script]",
        allow_abbrev=False,
    )
    parser.add_argument("script", type=Path, help="a stage script that trains, as launch/train.py")
    parser.add_argument("--ranks", type=int, help="number of ranks (default: the GPUs, or 2 on a CPU)")
    parser.add_argument("--ways", default=",".join(_WAYS), help=f"of {', '.join(_WAYS)} (default: all)")
    parser.add_argument("--timeout", type=float, help="seconds until the measured ranks are ended (default: 600)")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw the table, as PNG, SVG or PDF")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else on stdout")
    parser.set_defaults(action=_compare)


def _compare(asked: argparse.Namespace, rest: list[str]) -> int:
    from .lab.launcher import TIMEOUT_SECONDS
    from .show.comparison import compare_script

    if asked.figure and asked.figure.suffix not in (".png", ".svg", ".pdf"):
        raise UsageError(f"--figure {asked.figure}: expected a name that ends in .png, .svg or .pdf.")
    if unknown := [way for way in asked.ways.split(",") if way not in _WAYS]:
        raise UsageError(f"--ways {unknown[0]!r}: expected names of {', '.join(_WAYS)} with commas between.")
    timeout = TIMEOUT_SECONDS if asked.timeout is None else asked.timeout
    ways = [_WAYS[way] for way in asked.ways.split(",")]
    try:
        comparison = compare_script(asked.script, asked.ranks, rest, ways, timeout)
    except StageFailed as error:
        if error.comparison.columns and not asked.json:
            print(error.comparison)
        raise
    print(json.dumps(comparison.to_json(), indent=1) if asked.json else comparison)
    if asked.figure:
        _save(comparison, asked.figure)
    return 0


def _save(comparison, file: Path) -> None:
    from .show.memory_figures import ways

    try:
        ways(comparison).savefig(file)
    except OSError as error:
        raise UsageError(f"--figure {file} could not be written ({error.strerror}).") from None
