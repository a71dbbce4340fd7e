"""The recorder: marks stages and steps of a running script and writes this rank's record as it goes."""

import atexit
import json
import os
import platform
import re
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
import torch
import torch.distributed as dist

from ..contract import places, stand_in, workspace
from ..contract.errors import LabError, UsageError
from ..contract.record import RankError, RankRecord, StageRow, StepRow, write_record
from ..contract.settings import Settings, describe
from ..contract.untrusted import check_plain
from . import snapshot
from .deadline import wait_less_than_the_deadline
from .meters import meter_for, resident_bytes
from .step_meter import StepMeter
from .summary import print_step, print_summary

WRITE_SECONDS = 1.0  # between two writes in a training loop, at the least
WRITE_SHARE = 0.01  # of a loop's time may go into writing

_opened = False


def open_record(settings: Settings | None = None) -> "Record":
    """Start recording this rank; the record is written at every mark and closed when the script ends.

    Records go to the run folder that the launcher named, or, under plain `torchrun`, to a new one in `runs/`.
    Exits with status 2 and one sentence where that folder cannot be written, or where a GPU for this rank is
    missing. Raises `UsageError` while an earlier record is still open.
    """
    global _opened
    if stand_in.playing and (recorder := stand_in.playing.open_record(settings)):
        return recorder
    if _opened:
        raise UsageError("A record is open in this process already; pass it on, or close it first.")
    _opened = True
    wait_less_than_the_deadline()
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    meter = meter_for(device_type, local_rank)
    record = RankRecord(
        rank=int(os.environ.get("RANK", 0)),
        world_size=int(os.environ.get("WORLD_SIZE", 1)),
        local_rank=local_rank,
        host=socket.gethostname(),
        pid=os.getpid(),
        device=meter.device_name,
        how=meter.how,
        started_unix_seconds=time.time(),
        versions={"python": platform.python_version(), **_versions("torch", "transformers", "fsdp2-lab")},
        argv=sys.argv,
        settings=describe(settings) if settings else {},
    )
    try:
        if device_type == "cuda" and local_rank >= torch.cuda.device_count():
            raise UsageError(f"rank {record.rank} needs GPU {local_rank}; this host has {torch.cuda.device_count()}.")
        run_dir = _run_dir()
        write_record(run_dir, record)
    except UsageError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    return Record(run_dir, record, meter)


class Record:
    """One rank's record while its script runs."""

    def __init__(self, run_dir: Path, record: RankRecord, meter):
        self._run_dir, self._record, self._meter = run_dir, record, meter
        self._laps = []  # of the current stage
        self._stage_start = None
        self._next_write = 0.0
        self._write_failed = False
        self._logged = None
        atexit.register(self.close)
        self._previous_hook, sys.excepthook = sys.excepthook, self._on_exception
        places.stage_and_step = lambda: (self._stage_name, self._step)

    @property
    def folder(self) -> Path:
        """The run's folder, for what a script leaves beside its records."""
        return self._run_dir

    def stage(self, name: str) -> None:
        """Mark where a stage begins; the one before it ends here.

        Raises `UsageError` for a name that is no stage's or was marked before, and inside `record.steps`.
        """
        if self._logged:
            raise UsageError(
                f"record.stage({name!r}) stands inside `for batch in record.steps(batches)`; mark it outside."
            )
        if any(row.name == name for row in self._record.stages):
            raise UsageError(f"record.stage({name!r}) was marked before; a stage has one beginning.")
        self._end_stage()
        self._record.stages.append(StageRow(workspace.check_stage_name(name)))
        self._write()
        self._stage_start = time.perf_counter()
        self._meter.start()

    def steps(self, batches: Iterable, first: int = 0) -> Iterator:
        """Go through `batches`, one training step each, and measure every step; `first` is the number of the first.

        On a CPU the first two steps are metered and slow; the steps after them are timed. (A loop that does
        not go through here is metered, and slowed, from end to end.) The record of a step holds what the loop
        body gave to `log`; a step that `break` ends is not recorded.
        """
        self._lap()
        step_meter = StepMeter(self._meter)
        try:
            for step, batch in enumerate(batches, first):
                self._logged = StepRow(step, self._stage_name)
                with step_meter.measuring(self._logged, self._laps):
                    yield batch
                self._record.steps.append(self._logged)
                self._record.units = step_meter.units or self._record.units
                if time.monotonic() > self._next_write:
                    self._write()
                    if self._record.rank == 0:
                        print_step(self._logged)
        finally:
            self._logged = None
            self._lap()  # of a step that was broken out of
            self._write()
            self._meter.start()

    def log(self, *, loss, tokens, **values) -> None:
        """Note the current step's loss (mean over all ranks' tokens), tokens (of all ranks) and other numbers.

        Raises `UsageError` outside the loop over `steps`.
        """
        if self._logged is None:
            raise UsageError("record.log belongs in `for batch in record.steps(batches)`; elsewhere use record.note.")
        self._logged.loss, self._logged.tokens = _number(loss), int(tokens)
        self._logged.values = {name: _number(value) for name, value in values.items()}

    def note(self, **values) -> None:
        """Record values by name: numbers, strings, and lists or dicts of them. Raises `UsageError` for others."""
        for name, value in values.items():
            try:
                json.dumps(check_plain(value))
            except (TypeError, ValueError, RecursionError):
                kind = type(value).__name__
                raise UsageError(
                    f"record.note({name}=…) takes numbers, strings, lists and dicts of them, not {kind}; "
                    "a tensor has .item() and .tolist()."
                ) from None
        self._record.values |= values
        self._write()

    def close(self) -> None:
        """End the last stage, write the record, print rank 0's summary and leave an NCCL group."""
        if self._record.status != "running" or os.getpid() != self._record.pid:  # a forked child is not the rank
            return
        global _opened
        _opened = False
        self._end_stage()
        self._export_snapshot()
        self._meter.close()
        self._record.status = "ok"
        self._write()
        if self._record.rank == 0:
            print_summary(self._record, self._run_dir)
        # NCCL asks for it. Gloo does not, and its peers shall not fail before this process has ended.
        if dist.is_initialized() and dist.get_backend() == "nccl":
            dist.destroy_process_group()

    @property
    def _stage_name(self) -> str | None:
        return self._record.stages[-1].name if self._record.stages else None

    @property
    def _step(self) -> int | None:
        return self._logged.step if self._logged else None

    def _lap(self) -> None:
        if lap := self._meter.stop():
            self._laps.append(lap)

    def _end_stage(self) -> None:
        if self._stage_start is None:
            return
        self._meter.synchronize()
        seconds = time.perf_counter() - self._stage_start
        self._lap()
        self._record.device = self._meter.device_name
        rss, rss_peak = resident_bytes()
        row = replace(self._record.stages[-1], seconds=seconds, rss_bytes=rss, rss_peak_bytes=rss_peak)
        if self._laps:
            row.bytes_before = self._laps[0].bytes_before
            row.bytes_after = self._laps[-1].bytes_after
            row.peak_bytes = max(lap.peak_bytes for lap in self._laps)
            reserved = [lap.reserved_bytes for lap in self._laps if lap.reserved_bytes is not None]
            row.reserved_bytes = max(reserved, default=None)
        row.reserved_after_bytes, row.device_used_bytes = self._meter.held_on_device()
        self._record.stages[-1] = row
        self._laps, self._stage_start = [], None

    def _on_exception(self, kind, error, trace) -> None:
        if os.getpid() != self._record.pid:  # a forked child is not the rank
            self._previous_hook(kind, error, trace)
            return
        text = "".join(traceback.format_exception(kind, error, trace))
        self._record.error = RankError(
            self._record.rank,
            kind.__name__,
            str(error),
            text,
            self._stage_name,
            time.time(),
            self._step,
            time.monotonic(),
        )
        if threading.current_thread() is threading.main_thread():  # a meter belongs to the thread that started it
            with suppress(Exception):  # a rank that ran out of memory has its peak to tell
                self._end_stage()
            self._export_snapshot()
            self._meter.close()  # a profiler that still runs at exit ends the process with SIGSEGV
        self._record.status = "failed"
        self._write()
        if issubclass(kind, LabError):
            where = traceback.extract_tb(trace)[0]  # the script's own line
            print(f"{where.filename}:{where.lineno}: {kind.__name__}: {error}", file=sys.stderr)
        else:
            self._previous_hook(kind, error, trace)

    def _export_snapshot(self) -> None:
        try:
            snapshot.export(self._run_dir / f"rank{self._record.rank}_snapshot.pickle")
        except (OSError, RuntimeError) as error:
            print(f"rank {self._record.rank} keeps no snapshot ({error}).", file=sys.stderr, flush=True)

    def _write(self) -> None:
        start = time.monotonic()
        try:
            write_record(self._run_dir, self._record)
        except UsageError as error:  # a full disk must not end the training that it records
            if not self._write_failed:
                print(f"rank {self._record.rank} goes on without its record. {error}", file=sys.stderr, flush=True)
            self._write_failed = True
        now = time.monotonic()
        self._next_write = now + max(WRITE_SECONDS, (now - start) / WRITE_SHARE)


def _number(value) -> float:
    return float(value.detach() if isinstance(value, torch.Tensor) else value)


def _run_dir() -> Path:
    if given := os.environ.get(workspace.RUN_DIR_VARIABLE):
        return Path(given)
    # Without our launcher: torchrun's agent is the parent of every rank on this host, so its start names the run.
    namer = psutil.Process(os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else os.getpid())
    started = time.strftime("%Y%m%d-%H%M%S", time.localtime(namer.create_time()))
    # With --standalone torchrun draws a random id: nobody can guess it and prepare the folder.
    drawn = re.fullmatch(r"([0-9a-f]{8})-[0-9a-f-]{27}", os.environ.get("TORCHELASTIC_RUN_ID", ""))
    return workspace.new_run_path(Path(sys.argv[0]), started, str(namer.pid), *(drawn.groups() if drawn else ()))


def _versions(*packages: str) -> dict:
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
