"""Where a running job stands: what rank 0 has recorded so far, read sparingly, in numbers and in words."""

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from ...contract.record import RankRecord, rank_file, read_record
from ...contract.units import format_bytes, format_duration

_READ_SHARE = 0.005  # of the launcher's time may go into reading the record
_LARGEST_RECORD_BYTES = 8_000_000  # takes half a second; a larger one would hold the launcher up for longer
_RECENT_STEPS = 20  # that speed and ETA are taken from: a job may slow down or speed up


@dataclass(frozen=True)
class Standing:
    """How far a rank has come. `None` where nothing is known yet; bytes, seconds and tokens are as in the record.

    `done` are the names of stages that ended, `current` the one that runs. `tokens_per_second` and `eta_seconds`
    come from the timed ones of the last 20 steps of the current stage: all their tokens over all their seconds, and
    the steps left times their median. `eta_seconds` is of the steps only, not of what a script does after them.
    """

    done: list[str] = field(default_factory=list)
    current: str | None = None
    steps_done: int = 0
    steps_planned: int | None = None
    loss: float | None = None
    peak_bytes: int | None = None
    tokens_per_second: float | None = None
    eta_seconds: float | None = None

    @property
    def share(self) -> float | None:
        """Steps done of steps planned, 0 to 1."""
        return min(1.0, self.steps_done / self.steps_planned) if self.steps_done and self.steps_planned else None

    @property
    def numbers(self) -> list[str]:
        """What is known, as short phrases: step, loss, peak, speed, time left."""
        words = []
        if self.steps_done:
            of = f" of {self.steps_planned}" if self.steps_planned else ""
            words.append(f"step {self.steps_done}{of}")
        if self.loss is not None:
            words.append(f"loss {self.loss:.4f}")
        if self.peak_bytes is not None:
            words.append(f"peak {format_bytes(self.peak_bytes)}")
        if self.tokens_per_second is not None:
            words.append(f"{self.tokens_per_second:,.0f} tokens/s")
        if self.eta_seconds is not None and self.steps_done != self.steps_planned:
            words.append(f"{format_duration(self.eta_seconds)} left")
        return words


def standing(record: RankRecord) -> Standing:
    """Where a rank stood when it wrote its record."""
    names = [row.name for row in record.stages]
    running = record.status == "running"
    steps = [step for step in record.steps if step.stage in (None, *names[-1:])]
    planned = record.settings.get("steps") if steps else None
    planned = planned if isinstance(planned, int) and planned >= len(steps) else None
    peaks = [row.peak_bytes for row in (*record.stages, *record.steps) if row.peak_bytes is not None]
    timed = [step for step in steps[-_RECENT_STEPS:] if step.timed and step.seconds]
    counted = [step for step in timed if step.tokens]
    return Standing(
        done=names[:-1] if running else names,
        current=names[-1] if names and running else None,
        steps_done=len(steps),
        steps_planned=planned,
        loss=steps[-1].loss if steps else None,
        peak_bytes=max(peaks, default=None),
        tokens_per_second=sum(s.tokens for s in counted) / sum(s.seconds for s in counted) if counted else None,
        eta_seconds=(planned - len(steps)) * median(s.seconds for s in timed) if planned and timed else None,
    )


def where(record: RankRecord) -> str:
    """How far a rank has come, in a line: its stage and, in a training loop, steps done and the rest."""
    if not record.stages:
        return "starting"
    return ", ".join([f"stage {record.stages[-1].name}", *standing(record).numbers])


class Follower:
    """Reads rank 0's record when it changed, and never for more than 1 in 200 of the time."""

    def __init__(self, run_dir: Path):
        self._path = rank_file(run_dir, 0)
        self._seen, self._standing, self._read_at, self._next_read = None, None, 0.0, 0.0

    def look(self) -> Standing | None:
        """Where rank 0 stands; `None` until it has written a record that can be read."""
        now = time.monotonic()
        if now >= self._next_read:
            # Progress is a courtesy: a record that is not there yet, half there or odd must not end the launch, and
            # the last whole one stands. The run's end reads it in earnest.
            with suppress(Exception):
                self._read()
            self._next_read = now + (time.monotonic() - now) / _READ_SHARE
        if self._standing is None or self._standing.eta_seconds is None:
            return self._standing
        return replace(self._standing, eta_seconds=max(0.0, self._standing.eta_seconds - (now - self._read_at)))

    def _read(self) -> None:
        stat = self._path.stat()
        mark = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if mark != self._seen and stat.st_size <= _LARGEST_RECORD_BYTES:
            self._seen = mark
            self._standing, self._read_at = standing(read_record(self._path)), time.monotonic()
