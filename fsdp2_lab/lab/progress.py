"""Progress of a launch, read from rank 0's record: one display in a notebook, plain lines elsewhere."""

import sys
import time
from html import escape
from pathlib import Path

from ..contract.errors import UsageError
from ..contract.record import LaunchRecord, RankRecord, rank_file, read_record
from ..contract.secrets import redact, split_command
from ..contract.units import format_ranks, format_seconds

_REFRESH_SECONDS = 0.5
_LINE_SECONDS = 10.0  # between two lines about steps, where lines cannot be replaced


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

    def start(self, launch, run_dir):
        self._launch, self._run_dir = launch, run_dir
        self._stage, self._spoken = None, time.monotonic()
        self._say(_opening(launch))

    def update(self):
        record = _rank_0(self._run_dir)
        if record is None or not record.stages:
            return
        if (stage := record.stages[-1].name) != self._stage:
            self._stage = stage
            self._say(f"  stage {stage}")
        elif record.steps and time.monotonic() - self._spoken > _LINE_SECONDS:
            self._say(f"  {where(record)}")

    def finish(self, run):
        self._say(run.summary)

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)
        self._spoken = time.monotonic()


class Display(Progress):
    """One line in a notebook cell, replaced as the run goes on."""

    def start(self, launch, run_dir):
        from IPython.display import display

        self._launch, self._run_dir = launch, run_dir
        self._began = self._shown = time.monotonic()
        self._handle = display(_Line(_opening(launch)), display_id=True)

    def update(self):
        now = time.monotonic()
        if now - self._shown < _REFRESH_SECONDS:
            return
        self._shown = now
        record = _rank_0(self._run_dir)
        place = where(record) if record else "starting Python on every rank"
        self._handle.update(_Line(f"{_opening(self._launch)} · {place} · {format_seconds(now - self._began)}"))

    def finish(self, run):
        self._handle.update(_Line(f"{run.outcome} · {run.command}"))  # the run itself shows the rest


class _Line:
    """A line of text with a quiet look in a notebook."""

    def __init__(self, text: str):
        self._text = text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f"<small>{escape(self._text)}</small>"


def make_progress() -> Progress:
    """The progress that suits where we are: a notebook's kernel, or a terminal or log."""
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    return Display() if shell and hasattr(shell, "kernel") else Lines()


def _opening(launch: LaunchRecord) -> str:
    ranks, threads = format_ranks(launch.ranks), launch.threads_per_rank
    if threads is not None:
        ranks += f" × {threads} thread{'s' * (threads != 1)}"
    command = redact(launch.command, split_command(launch.command))
    return f"{command} · {ranks}, {launch.how} · at most {launch.timeout_seconds:g} s"


def _rank_0(run_dir: Path) -> RankRecord | None:
    path = rank_file(run_dir, 0)
    try:
        return read_record(path) if path.exists() else None
    except UsageError:
        return None  # progress is a courtesy; the run's end reads the records in earnest


def where(record: RankRecord) -> str:
    """How far a rank has come: its stage and, in a training loop, steps done and the last loss."""
    if not record.stages:
        return "starting"
    stage = f"stage {record.stages[-1].name}"
    if not record.steps:
        return stage
    step = record.steps[-1]
    of = f" of {record.settings['steps']}" if "steps" in record.settings else ""
    loss = "" if step.loss is None else f", loss {step.loss:.4f}"
    return f"{stage}, {len(record.steps)}{of} steps done{loss}"
