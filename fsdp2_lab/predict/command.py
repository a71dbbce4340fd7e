"""`fsdp2-lab account`: its arguments, from the settings common to all scripts."""

import argparse
import json
from dataclasses import fields
from inspect import signature

from ..contract.settings import Settings
from .account import account
from .jobs import GRANULARITIES, OPTIMIZERS

_DECIDING = set(signature(account).parameters)  # other settings decide no memory: taken, and not looked at


def add_account(commands) -> None:
    """Add the command to a parser's subcommands."""
    parser = commands.add_parser(
        "account",
        help="predict a job's memory from formulas, term by term",
        usage="fsdp2-lab account MODEL --ranks N [settings of a script] [--device cpu|cuda] [--json]",
        allow_abbrev=False,
    )
    parser.add_argument("model", help="a known model, as llama-3.1-8b, or a Hugging Face folder with a config")
    parser.add_argument("--ranks", type=int, required=True, help="number of ranks")
    for setting in fields(Settings):
        if setting.name != "model":
            _add(parser, setting)
    parser.add_argument("--device", default="auto", help="whose kernels to suppose (default: this machine's)")
    parser.add_argument("--optimizer", default="adamw", help=f"{' or '.join(OPTIMIZERS)} (default: adamw)")
    parser.add_argument("--foreach", type=_truth, help="whether AdamW works on all at once (default: on CUDA)")
    parser.add_argument("--fused", type=_truth, nargs="?", const=True, default=False, help="AdamW in one kernel")
    parser.add_argument(
        "--granularity", default="block", help=f"what is one group: {' or '.join(GRANULARITIES)} (default: block)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(action=_account)


def _add(parser: argparse.ArgumentParser, setting) -> None:
    names = dict.fromkeys((f"--{setting.name.replace('_', '-')}", f"--{setting.name}"))
    text = f"{setting.metadata['help']} (default: {setting.default})"
    if setting.type is bool:
        parser.add_argument(*names, type=_truth, nargs="?", const=True, default=setting.default, help=text)
    else:
        parser.add_argument(*names, type=setting.type, default=setting.default, help=text)


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _account(asked: argparse.Namespace, _rest: list[str]) -> int:
    predicted = account(**{name: value for name, value in vars(asked).items() if name in _DECIDING})
    print(json.dumps(predicted.to_json(), indent=1) if asked.json else predicted)
    return 0
