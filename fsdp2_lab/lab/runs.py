"""Runs: what ranks and launcher recorded, read back as losses, times, bytes and a tidy frame."""

import shlex
from dataclasses import asdict, fields
from functools import cached_property
from html import escape
from pathlib import Path
from statistics import median

import pandas as pd

from ..contract import workspace
from ..contract.errors import UsageError
from ..contract.record import (
    LaunchRecord,
    RankError,
    RankRecord,
    StageRow,
    finite,
    rank_file,
    read_launch,
    read_records,
)
from ..contract.secrets import redact, redact_json, split_command
from ..contract.units import format_bytes, format_ranks, format_seconds
from .verdict.failure import failure_text

_STAGE_QUANTITIES = tuple(field.name for field in fields(StageRow) if field.name != "name")
_STEP_QUANTITIES = ("loss", "tokens", "seconds", "peak_bytes")


class Run:
    """One run, read from its folder."""

    def __init__(self, run_dir: Path, launch: LaunchRecord | None = None):
        self.dir = run_dir
        if launch:  # its launcher knows it better than a disk that may be full
            self.launch = launch

    @classmethod
    def open(cls, run_id: str) -> "Run":
        """An earlier run by its id. Raises `UsageError` where `runs/` has none of that id."""
        run_dir = workspace.run_path(run_id)
        if not run_dir.is_dir():
            raise UsageError(f"No run {run_id!r} in {workspace.runs_dir()}; `fsdp2-lab runs` lists them.")
        return cls(run_dir)

    @property
    def id(self) -> str:
        return self.dir.name

    @cached_property
    def records(self) -> list[RankRecord]:
        """One record per rank, in rank order; none for a script that keeps no record."""
        return read_records(self.dir)

    @cached_property
    def launch(self) -> LaunchRecord | None:
        return read_launch(self.dir)

    @property
    def status(self) -> str:
        """`ok`, `failed`, `timeout`, `interrupted`, or `running` where nobody has said how it ended."""
        if self.launch:
            return self.launch.status
        states = {record.status for record in self.records}
        return next((state for state in ("failed", "running", "ok") if state in states), "running")

    @property
    def ranks(self) -> int:
        return self.launch.ranks if self.launch else self.records[0].world_size if self.records else 0

    @property
    def how(self) -> str:
        """How this run's numbers were got: `measured (CPU)` or `measured (CUDA)`."""
        return self.records[0].how if self.records else self.launch.how if self.launch else "measured"

    @property
    def command(self) -> str:
        if self.launch:
            return redact(self.launch.command, self._argv)
        return shlex.join(["torchrun", f"--nproc_per_node={self.ranks}", *self.records[0].argv]) if self.records else ""

    @property
    def _argv(self) -> list[str]:
        # Options may hold secrets, which a launch that still runs has in memory.
        return split_command(self.launch.command) if self.launch else []

    @property
    def error(self) -> RankError | None:
        """What ended the rank that failed first, or `None`."""
        if self.launch:
            return self.launch.error
        return next((record.error for record in self.records if record.error), None)

    @property
    def stage_names(self) -> list[str]:
        """The stages of all ranks, in the order in which they began."""
        return list(dict.fromkeys(row.name for record in self.records for row in record.stages))

    def stage(self, name: str) -> list[StageRow]:
        """One stage on every rank, in rank order. Raises `UsageError` where the run has no such stage."""
        rows = [row for _, row in self._by_rank(name)]
        if not rows:
            raise UsageError(f"No stage {name!r} in {self.id}; it has {', '.join(self.stage_names) or 'none'}.")
        return rows

    @property
    def losses(self) -> list[float]:
        """The loss of every step, as rank 0 logged it: the mean over the tokens of all ranks."""
        return [step.loss for step in self.records[0].steps if step.loss is not None] if self.records else []

    @property
    def step_seconds(self) -> float | None:
        """Median over the timed steps, each as long as on its slowest rank; `None` where none was timed."""
        timed = [
            max(row.seconds for row in rows)
            for rows in self._steps()
            if all(row.timed and row.seconds is not None for row in rows)
        ]
        return median(timed) if timed else None

    @property
    def step0_peak_bytes(self) -> int | None:
        """Peak of the first step, in which the optimizer makes its states; the largest over ranks."""
        return _largest(row.peak_bytes for rows in self._steps()[:1] for row in rows)

    @property
    def peak_bytes(self) -> int | None:
        """Peak of the steps after the first; the largest over ranks."""
        return _largest(row.peak_bytes for rows in self._steps()[1:] for row in rows)

    def noted(self, name: str) -> dict[int, object]:
        """What each rank noted under a name: rank to value. Raises `UsageError` where none did."""
        values = {record.rank: record.values[name] for record in self.records if name in record.values}
        if not values:
            known = sorted({key for record in self.records for key in record.values})
            raise UsageError(f"No rank of {self.id} noted {name!r}; noted: {', '.join(known) or 'nothing'}.")
        return values

    @property
    def terms(self) -> dict[str, int]:
        """Rank 0's bytes at the peak of the second step by what they are for; empty where they were not told apart."""
        steps = self.records[0].steps if self.records else []
        return steps[1].terms if len(steps) > 1 else {}

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Everything measured, tidy: rank, stage, step, quantity, value, unit, how.

        A step's numbers include what the script logged by name. `timed` is 1 where no meter slowed the step.
        """
        rows = []
        for record in self.records:
            for stage in record.stages:
                rows += [(record.rank, stage.name, None, q, getattr(stage, q)) for q in _STAGE_QUANTITIES]
            for step in record.steps:
                numbers = {q: getattr(step, q) for q in _STEP_QUANTITIES} | step.values | {"timed": int(step.timed)}
                rows += [(record.rank, step.stage, step.step, *number) for number in numbers.items()]
        rows = [row for row in rows if row[-1] is not None]  # a NaN loss stays: it was measured
        frame = pd.DataFrame(rows, columns=["rank", "stage", "step", "quantity", "value"])
        frame["step"] = frame["step"].astype("Int64")
        frame["unit"] = frame["quantity"].map(_unit)
        return frame.assign(how=self.how).reset_index(drop=True)

    @property
    def table(self) -> pd.DataFrame:
        """Stages by rank, ready to be read: seconds, and bytes before, after and at peak."""
        rows = [
            {
                "stage": name,
                "rank": rank,
                "seconds": format_seconds(row.seconds),
                "bytes before": format_bytes(row.bytes_before),
                "bytes after": format_bytes(row.bytes_after),
                "peak bytes": format_bytes(row.peak_bytes),
            }
            for name in self.stage_names
            for rank, row in self._by_rank(name)
        ]
        return pd.DataFrame(rows)

    @property
    def outcome(self) -> str:
        """Its id, how it ended, on how many ranks, how its numbers were got, and how long it took."""
        parts = [self.id, self.status, format_ranks(self.ranks), self.how]
        if self.launch and self.launch.seconds is not None:
            parts.append(format_seconds(self.launch.seconds))
        return " · ".join(parts)

    @property
    def summary(self) -> str:
        """One line: the outcome, and losses, step time and step peak where it trained."""
        parts = [self.outcome]
        if self.losses:
            parts.append(f"loss {self.losses[0]:.4f} → {self.losses[-1]:.4f} over {len(self.losses)} steps")
        if self.step_seconds:
            parts.append(f"step {format_seconds(self.step_seconds)}")
        if self.peak_bytes or self.step0_peak_bytes:
            parts.append(f"step peak {format_bytes(self.peak_bytes or self.step0_peak_bytes)}")
        return " · ".join(parts)

    def failure(self) -> str:
        """Why it did not end well: the first rank's own traceback, what followed, then logs, run and command."""
        return redact(failure_text(self), self._argv)

    def to_json(self) -> dict:
        """The run as `fsdp2-lab run --json` prints it."""
        launch = self.launch
        facts = {
            "id": self.id,
            "status": self.status,
            "how": self.how,
            "ranks": self.ranks,
            "run_dir": str(self.dir),
            "command": self.command,
            "seconds": launch and launch.seconds,
            "exit_codes": launch and launch.exit_codes,
            "rss_peak_bytes": launch and launch.rss_peak_bytes,
            "stages": [self._stage_json(name) for name in self.stage_names],
            "steps": [self._step_json(rows) for rows in self._steps()],
            "step_seconds": self.step_seconds,
            "step0_peak_bytes": self.step0_peak_bytes,
            "peak_bytes": self.peak_bytes,
            "error": self.error and asdict(self.error),
            "explanation": launch.explanation if launch else [],
            "consequences": launch.consequences if launch else [],
        }
        return redact_json(finite(facts), self._argv)

    def _stage_json(self, name: str) -> dict:
        per_rank = [
            {"rank": rank} | {quantity: getattr(row, quantity) for quantity in _STAGE_QUANTITIES}
            for rank, row in self._by_rank(name)
        ]
        return {"name": name, "ranks": per_rank}

    def _by_rank(self, name: str) -> list[tuple[int, StageRow]]:
        return [(record.rank, row) for record in self.records for row in record.stages if row.name == name]

    def _step_json(self, rows) -> dict:
        return {
            "step": rows[0].step,
            "loss": rows[0].loss,
            "tokens": rows[0].tokens,
            "seconds": _largest(row.seconds for row in rows),
            "timed": all(row.timed for row in rows),
            "peak_bytes": _largest(row.peak_bytes for row in rows),
        }

    def _steps(self) -> list[tuple]:
        # A step counts once every rank has finished it.
        return list(zip(*(record.steps for record in self.records), strict=False))

    def __repr__(self) -> str:
        body = self.table.to_string(index=False) if self.stage_names else "(the script marked no stage)"
        return f"{self.summary}\n{body}"

    def _repr_html_(self) -> str:
        table = self.table.to_html(index=False, border=0) if self.stage_names else ""
        return f"{table}<p><small>{escape(self.summary)}</small></p>"


def runs() -> pd.DataFrame:
    """All runs in `runs/`, newest first: id, status, ranks, seconds, how, command."""
    rows = []
    for run_dir in workspace.runs_dir().glob("*/"):
        if not (run_dir / "run.json").exists() and not rank_file(run_dir, 0).exists():
            continue
        try:
            run = Run(run_dir)
            begun = run.launch or run.records[0]
            seconds = run.launch and run.launch.seconds
            rows.append((begun.started_unix_seconds, run.id, run.status, run.ranks, seconds, run.how, run.command))
        except UsageError as error:
            rows.append((run_dir.stat().st_mtime, run_dir.name, "unreadable", None, None, "", str(error)))
    frame = pd.DataFrame(rows, columns=["started", "id", "status", "ranks", "seconds", "how", "command"])
    return frame.sort_values("started", ascending=False).drop(columns="started").reset_index(drop=True)


def _unit(quantity: str) -> str:
    if quantity.endswith("bytes") or quantity.startswith("bytes"):
        return "bytes"
    return {"seconds": "s", "tokens": "tokens", "timed": "yes or no"}.get(quantity, "as logged")


def _largest(values) -> float | None:
    return max((value for value in values if value is not None), default=None)
