"""Progress of a launch: one display in a notebook, a live one in a terminal, plain lines elsewhere."""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from ...contract.errors import LabError, first_line
from ...contract.record import LaunchRecord
from ...contract.secrets import redact, split_command
from ...contract.units import format_ranks
from .standing import Follower

_LINE_SECONDS = 10.0  # between two lines about steps, where lines cannot be replaced

_STARTING = "starting Python on every rank"
_ASKED_TO_BE_COLD = "warm=False"  # nobody needs to be told what they asked for


class Progress:
    """What a launch reports to; this one keeps quiet."""

    def start(self, launch: LaunchRecord, run_dir: Path) -> None:
        """Called once torchrun has started."""

    def update(self) -> None:
        """Called several times a second while it runs."""

    def finish(self, run) -> None:
        """Called once, however it ended."""


class Lines(Progress):
    """Plain lines on stderr: a line per stage, and one about steps now and then."""

    _said_cold = False

    def start(self, launch, run_dir):
        self._launch, self._follower = launch, Follower(run_dir)
        self._said, self._spoken = 0, time.monotonic()
        self._say(opening(launch))
        self._say_cold()

    def update(self):
        self._say_cold()
        standing = self._follower.look()
        if standing is None:
            return
        reached = [*standing.done, *([standing.current] if standing.current else [])]
        for stage in reached[self._said :]:
            self._say(f"  stage {stage}")
        self._said = max(self._said, len(reached))
        if standing.steps_done and standing.current and time.monotonic() - self._spoken > _LINE_SECONDS:
            self._say(f"  {', '.join([f'stage {standing.current}', *standing.numbers])}")

    def finish(self, run):
        self._say(closing(run))

    def _say_cold(self) -> None:
        # The launcher may learn of it only after the start.
        if not self._said_cold and starting(self._launch) != _STARTING:
            self._said_cold = True
            self._say(f"  {starting(self._launch)}")

    def _say(self, line: str) -> None:
        with suppress(OSError, ValueError):  # a closed pipe or terminal ends no launch
            print(line, file=sys.stderr, flush=True)
        self._spoken = time.monotonic()


def make_progress() -> Progress:
    """The progress that suits where we are: a notebook's kernel, a terminal, or a log."""
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    if shell and hasattr(shell, "kernel"):
        from .notebook_display import Display

        return Display()
    # A dumb terminal cannot replace a line, and a CI's terminal is a log that somebody reads later.
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown") and not os.environ.get("CI"):
        from .terminal import Terminal

        return Terminal()
    return Lines()


def opening(launch: LaunchRecord) -> str:
    """One line without secrets: the command, ranks, how numbers are got, and the deadline."""
    ranks, threads = format_ranks(launch.ranks), launch.threads_per_rank
    if threads is not None:
        ranks += f" × {threads} thread{'s' * (threads != 1)}"
    command = redact(launch.command, split_command(launch.command))
    return f"{command} · {ranks}, {launch.how} · at most {launch.timeout_seconds:g} s"


def starting(launch: LaunchRecord) -> str:
    """What happens before the first stage, and why it takes long where ranks could not be forked."""
    why = launch.cold_because
    return _STARTING if why in (None, _ASKED_TO_BE_COLD) else f"{_STARTING}; cold, since {why}"


def closing(run) -> str:
    """A run's summary, or why its records cannot be read: the launcher's own error shall come through."""
    try:
        return run.summary
    except LabError as error:
        return first_line(error)
