"""A script is played in a process of its own, so that the caller's torch, if it has one, stays as it is."""

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

from ..contract.errors import UsageError
from ..contract.settings import parse_settings

MOST_RANKS = 10**6
TIMEOUT_SECONDS = 600.0


def check_request(script: Path, ranks: int, argv: list[str], timeout: float = TIMEOUT_SECONDS) -> None:
    """Raises `UsageError` for what no process need be started for: ranks, script, settings or a deadline."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise UsageError(f"timeout={timeout}: expected a number of seconds above 0.")
    if isinstance(ranks, bool) or not isinstance(ranks, int) or not 1 <= ranks <= MOST_RANKS:
        raise UsageError(f"ranks={ranks!r}: expected a whole number from 1 to {MOST_RANKS:,}.")
    if not script.is_file():
        raise UsageError(f"No script {script}: expected a stage script, as launch/train.py.")
    text = script.read_text(encoding="utf-8", errors="replace")
    if "open_record(" not in text or ".steps(" not in text:
        raise UsageError(
            f"{script} is no stage script that trains: it needs `record = open_record(settings)` and "
            "`for batch in record.steps(batches)`, as in launch/train.py."
        )
    if reads_settings(script):
        parse_settings(argv)


def reads_settings(script: Path) -> bool:
    """Whether a script takes our settings from its command line."""
    return "read_settings(" in script.read_text(encoding="utf-8", errors="replace")


def play(script: Path, request: dict, environment: dict[str, str], timeout: float = TIMEOUT_SECONDS) -> dict:
    """What `child.py` found for a request, as JSON. Raises `UsageError` with one sentence where it could not.

    `timeout` is the deadline in seconds; a script that waits for another rank waits for ever.
    """
    started = time.monotonic()
    command = [sys.executable, "-m", "fsdp2_lab.predict.child", json.dumps({"script": str(script), **request})]
    alive, ours = os.pipe()  # closes with this process, however that ends, and the child ends with it
    try:
        ended = subprocess.run(
            command,
            env=os.environ | environment,
            stdin=alive,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"{script} was not played within {timeout:g} s: does it wait for another rank? Else give more time."
        ) from None
    finally:
        os.close(alive)
        os.close(ours)
    try:
        told = json.loads(ended.stdout)
    except ValueError:
        last = next((line for line in reversed(ended.stderr.splitlines()) if line.strip()), "it said nothing")
        raise UsageError(
            f"{script} could not be played: its process ended with code {ended.returncode} ({last:.200})."
        ) from None
    if sentence := told.get("error"):
        raise UsageError(sentence)
    return told | {"seconds": time.monotonic() - started}
