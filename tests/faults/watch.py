"""Watch a launch from outside: every process it starts, every port they listen on, every temporary file they leave."""

import threading
import time
import uuid
from pathlib import Path

import psutil

SAMPLE_SECONDS = 0.05
SCAN_SECONDS = 0.5  # between two looks at every process of the machine
TOKEN_VARIABLE = "FSDP2_LAB_FAULT_TOKEN"  # whatever a launch starts inherits it, also into a session of its own
LEFT_SECONDS = 2.0  # a process may outlive its launch by this much

# A cache that torch means to keep; not a leftover.
KEPT = ("torchinductor_",)


class Watch:
    """Samples what descends from a process, and what carries its token, until it is told to stop.

    Used as a context manager round everything a test does with a launch; `environment` goes to the process.
    """

    def __init__(self, temporary: Path):
        self.token = uuid.uuid4().hex
        self.environment = {TOKEN_VARIABLE: self.token, "TMPDIR": str(temporary)}
        self.listened: set[tuple[str, int]] = set()  # address and port
        self._temporary = temporary
        self._root: psutil.Process | None = None
        self._seen: dict[tuple[int, float], psutil.Process] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample_on, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join()
        for process in self.alive():  # by this test, so that a failure leaves nothing either
            _ignore_gone(process.kill)

    def follow(self, pid: int) -> None:
        """Take a process for the one that launches: it is not a leftover itself, what it starts may be."""
        self._root = psutil.Process(pid)

    @property
    def seen(self) -> list[psutil.Process]:
        return list(self._seen.values())

    def alive(self) -> list[psutil.Process]:
        """Those of the processes seen that run still, and any that carries the token. A zombie has ended."""
        self._scan()
        return [process for process in self.seen if _runs(process)]

    def left(self, seconds: float = LEFT_SECONDS, but=lambda process: False) -> list[str]:
        """What still runs after so many seconds, each by its pid and command line; `but` excepts a process."""
        deadline = time.monotonic() + seconds
        while alive := [p for p in self.alive() if not _ignore_gone(lambda p=p: but(p))]:
            if time.monotonic() > deadline:
                break
            time.sleep(SAMPLE_SECONDS)
        return [f"{p.pid} {' '.join(_ignore_gone(p.cmdline) or ['?'])[:150]}" for p in alive]

    def temporary_files(self) -> list[str]:
        """What the launch left in its temporary folder."""
        return sorted(path.name for path in self._temporary.iterdir() if not path.name.startswith(KEPT))

    def ports_held(self) -> list[int]:
        """Ports that its processes listen on still."""
        return sorted({port for _, port in self._listening()})

    def also(self, pid: int, unix_seconds: float) -> None:
        """Watch a process that neither descends from the launch any more nor carries its token.

        It was alive at `unix_seconds`: one that is younger has the same pid and is not ours.
        """
        process = _ignore_gone(lambda: psutil.Process(pid))
        if process and process.create_time() < unix_seconds + 1:
            self._remember([process])

    def _sample_on(self) -> None:
        scanned = 0.0
        while not self._stop.wait(SAMPLE_SECONDS):
            if self._root:
                self._remember(_ignore_gone(lambda: self._root.children(recursive=True)) or [])
            if time.monotonic() - scanned > SCAN_SECONDS:
                self._scan()
                self.listened |= self._listening()
                scanned = time.monotonic()

    def _scan(self) -> None:
        for process in psutil.process_iter():
            if process.pid != (self._root and self._root.pid):
                environment = _ignore_gone(process.environ) or {}
                if environment.get(TOKEN_VARIABLE) == self.token:
                    self._remember([process])

    def _remember(self, processes) -> None:
        for process in processes:
            self._seen.setdefault((process.pid, process.create_time()), process)

    def _listening(self) -> set[tuple[str, int]]:
        found = set()
        for process in [*self.seen, *([self._root] if self._root else [])]:
            for connection in _ignore_gone(lambda process=process: process.net_connections("tcp")) or []:
                if connection.status == psutil.CONN_LISTEN:
                    found.add((connection.laddr.ip, connection.laddr.port))
        return found


def _runs(process: psutil.Process) -> bool:
    return process.is_running() and _ignore_gone(process.status) not in (None, psutil.STATUS_ZOMBIE)


def _ignore_gone(ask):
    try:
        return ask()
    except (psutil.Error, OSError):
        return None
