"""A fault, and the launch that meets it: in a project folder of its own, watched."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from watch import Watch

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.record import RankRecord, read_record

SCRIPTS = Path(__file__).parent / "scripts"
REPORT_SECONDS = 10.0  # from a fault to the end of the command that reports it
DEADLINE_SECONDS = 90.0  # for launches that do not wait for it


@dataclass(frozen=True)
class Fault:
    """One row of a table of faults. `says` are patterns for what a person is told, `error` one for the JSON."""

    name: str
    says: str
    error_type: str | None = None
    error: str = ""
    hint: str = ""  # a likely cause, beside what is known
    script: str = "faults.py"
    ranks: int = 2
    rank: int | None = 1  # which is to be named; None where any may be
    stage: str | None = "work"
    recorded: str | None = None  # status of the record of the rank at fault
    tracebacks: int | None = None
    codes: tuple[int, ...] = (1,)
    statuses: tuple[str, ...] = ("failed",)
    report_seconds: float = REPORT_SECONDS
    timeout: float = DEADLINE_SECONDS
    keeps_records: bool = True
    fast: bool = False

    @property
    def id(self) -> str:
        of_foreign = "foreign-" if self.script == "foreign_faults.py" else ""
        return f"{of_foreign}{self.name}-{self.ranks}"


@dataclass
class Ended:
    """A launch that has ended, and what it left."""

    code: int
    stdout: bytes
    raw_stderr: bytes
    began: float  # monotonic seconds
    ended: float
    folder: Path
    home: Path
    watch: Watch
    runs_before: set[Path] = field(default_factory=set)

    @cached_property
    def stderr(self) -> str:
        return self.raw_stderr.decode("utf-8", errors="replace")

    @property
    def said(self) -> str:
        """Everything, for a person who reads why a test failed."""
        return f"exit code {self.code}\n{self.stderr[-6000:]}"

    @cached_property
    def told(self) -> dict:
        return json.loads(self.stdout)

    @cached_property
    def run_dir(self) -> Path | None:
        """The folder of the run that it made, or `None`."""
        made = set((self.home / "runs").glob("*")) - self.runs_before
        return made.pop() if len(made) == 1 else None

    @property
    def one_sentence(self) -> bool:
        """Whether what it said is one sentence for a person, at the end of a line, and no traceback."""
        return len(self.stderr.strip().splitlines()) == 1 and self.stderr.rstrip().endswith(".")

    @property
    def reached(self) -> dict[int, int]:
        """The ranks that came as far as their work: rank to pid."""
        return pids_of_ranks(self.folder)

    @property
    def seconds_to_report(self) -> float | None:
        file = self.folder / "fault"
        return self.ended - float(file.read_text()) if file.exists() else None

    def record(self, rank: int) -> RankRecord | None:
        try:
            return read_record(self.run_dir / f"rank{rank}.json") if self.run_dir else None
        except UsageError:
            return None


def pids_of_ranks(folder: Path) -> dict[int, int]:
    """The ranks that left a sign of having come as far as their work: rank to pid."""
    files = {int(path.name.removeprefix("reached")): path.read_text() for path in folder.glob("reached*")}
    return {rank: int(pid) for rank, pid in files.items() if pid}  # a file without a pid is being written


class Lab:
    """A project folder of its own, and launches from it by the command line."""

    def __init__(self, base: Path, home: Path | None = None):
        self.home, self.folder, self.temporary = home or base / "home", base / "signs", base / "tmp"
        self._base = base
        for folder in (self.home, self.folder, self.temporary):
            folder.mkdir(parents=True, exist_ok=True)
        self.watch = Watch(self.temporary)
        self.measures: dict[str, object] = {}
        gone = ("FSDP2_LAB_RUN_DIR", "FSDP2_LAB_FAULTS_JSON")
        self.environment = {name: value for name, value in os.environ.items() if name not in gone}
        self.environment |= {"FSDP2_LAB_HOME": str(self.home), "COLUMNS": "200", **self.watch.environment}

    @property
    def reached(self) -> dict[int, int]:
        return pids_of_ranks(self.folder)

    def adopt(self) -> None:
        """Watch what ranks and their children wrote down of themselves, too."""
        for sign in [*self.folder.glob("left*"), *self.folder.glob("reached*")]:
            if pid := sign.read_text():
                self.watch.also(int(pid), sign.stat().st_mtime)

    def command(self, script, *argv, ranks: int = 2, timeout: float = DEADLINE_SECONDS) -> list[str]:
        asked = ["run", script, "--ranks", ranks, "--timeout", timeout, "--json", *argv, self.folder]
        return [sys.executable, "-m", "fsdp2_lab", *map(str, asked)]

    def start(self, command: list[str], **options) -> subprocess.Popen:
        """Start a launch and watch it; its output goes to files, so that nothing waits for a reader."""
        self._began = time.monotonic()
        self._runs_before = set((self.home / "runs").glob("*"))
        self._stdout, self._stderr = self._base / "stdout", self._base / "stderr"
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            process = subprocess.Popen(
                command, env=self.environment, cwd=self.home, stdout=stdout, stderr=stderr, **options
            )
        self.watch.follow(process.pid)
        return process

    def wait_until_reached(self, process: subprocess.Popen, ranks: int = 2, seconds: float = 60) -> None:
        """Wait until every rank of a launch has come as far as its work."""
        deadline = time.monotonic() + seconds
        while len(self.reached) < ranks:
            assert process.poll() is None, f"it ended before its ranks began:\n{self._stderr.read_text()}"
            assert time.monotonic() < deadline, f"no rank began within {seconds:g} s:\n{self._stderr.read_text()}"
            time.sleep(0.05)

    def end(self, process: subprocess.Popen, seconds: float = DEADLINE_SECONDS + 30) -> Ended:
        """Wait for the end of a launch; one that hangs is ended, and has failed its test."""
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"it hung for {seconds:g} s:\n{self._stderr.read_text()[-6000:]}") from None
        ended = time.monotonic()
        self.adopt()
        return Ended(
            code,
            self._stdout.read_bytes(),
            self._stderr.read_bytes(),
            self._began,
            ended,
            self.folder,
            self.home,
            self.watch,
            self._runs_before,
        )

    def run(self, script, *argv, ranks: int = 2, timeout: float = DEADLINE_SECONDS, **options) -> Ended:
        command = self.command(script, *argv, ranks=ranks, timeout=timeout)
        return self.end(self.start(command, **options), timeout + 30)

    def run_python(self, script: str, *argv, seconds: float = DEADLINE_SECONDS) -> Ended:
        """Run one of our scripts as a process of its own, with the folder for signs as its last word."""
        return self.end(self.start([sys.executable, str(SCRIPTS / script), *map(str, argv), str(self.folder)]), seconds)

    def meet(self, fault: Fault) -> Ended:
        """Launch a fault."""
        return self.run(SCRIPTS / fault.script, fault.name, ranks=fault.ranks, timeout=fault.timeout)
