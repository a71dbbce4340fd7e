"""One `torchrun` and everything it starts: watched while it runs, gone when it ends."""

import os
import subprocess
from pathlib import Path

import psutil

from ..contract.workspace import RUN_DIR_VARIABLE

_GRACE_SECONDS = 2.0  # between asking processes to end and ending them


class Job:
    """A torchrun agent and its descendants.

    Workers have sessions of their own and outlive a killed agent, so they are found by what they inherit:
    the run folder in their environment.
    """

    def __init__(self, command: list[str], environment: dict[str, str], log: Path, run_dir: Path):
        self._marker = str(run_dir)
        self.rss_peak_bytes: dict[str, int] = {}
        self._ranks: dict[psutil.Process, str | None] = {}
        with log.open("wb") as file:
            self._agent = psutil.Popen(
                command,
                env=environment | {RUN_DIR_VARIABLE: self._marker},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches us alone, and we end the ranks in order
            )

    def poll(self) -> int | None:
        """The agent's exit code, or `None` while it runs; samples each rank's resident memory on the way."""
        code = self._agent.poll()
        if code is None:
            self._sample()
        return code

    def end(self) -> None:
        """End every process of this run that is still alive: first asked, then killed."""
        alive = self._processes()
        for process in alive:
            _ignore_gone(process.terminate)
        _, alive = psutil.wait_procs(alive, timeout=_GRACE_SECONDS)
        for process in {*alive, *self._processes()}:
            _ignore_gone(process.kill)
        psutil.wait_procs(alive, timeout=_GRACE_SECONDS)

    def _processes(self) -> list[psutil.Process]:
        found = [self._agent] if self._agent.poll() is None else []
        for process in psutil.process_iter():
            environment = _ignore_gone(process.environ) or {}
            if environment.get(RUN_DIR_VARIABLE) == self._marker and process.pid not in (os.getpid(), self._agent.pid):
                found.append(process)
        return found

    def _sample(self) -> None:
        for child in _ignore_gone(self._agent.children) or []:
            if self._ranks.get(child) is None:
                self._ranks[child] = (_ignore_gone(child.environ) or {}).get("RANK")
            rank, memory = self._ranks[child], _ignore_gone(child.memory_info)
            if rank is not None and memory:
                self.rss_peak_bytes[rank] = max(memory.rss, self.rss_peak_bytes.get(rank, 0))


def _ignore_gone(ask):
    try:
        return ask()
    except (psutil.Error, OSError):
        return None
