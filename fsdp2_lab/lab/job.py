"""One torchrun agent and everything it starts: watched while it runs, gone when it ends."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

import psutil

from ..contract.places import STAND_SIGNAL, read_place
from ..contract.processes import ignore_gone, kill_all, processes_of
from ..contract.workspace import PARENT_VARIABLE

_GRACE_SECONDS = 2.0  # between asking processes to end and ending them
_STAND_SECONDS = 1.5  # for ranks to say where they stand
_CENSUS_SECONDS = 1.0  # between two looks at who descends from whom


class Agent(Protocol):
    """torchrun's agent, however it was started."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code, negative for a signal, or `None` while it runs."""


def start_agent(arguments: list[str], environment: dict[str, str], log: Path) -> Agent:
    """Start torchrun's agent as a Python of its own. It watches this process, and ends its ranks when we are gone."""
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "fsdp2_lab.agent", *arguments],
            env=environment | {PARENT_VARIABLE: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches us alone, and we end the ranks in order
        )


class Job:
    """A running launch. Ranks are known by what they wrote on starting; other processes by their environment."""

    def __init__(self, agent: Agent, run_dir: Path, ranks: int):
        self._agent, self._run_dir = agent, run_dir
        self._ranks: dict[int, psutil.Process | None] = dict.fromkeys(range(ranks))
        self._family: set[psutil.Process] = set()
        self._next_census = 0.0
        self.rss_peak_bytes: dict[str, int] = {}

    def poll(self) -> int | None:
        """The agent's exit code, or `None` while it runs; looks after the ranks on the way."""
        code = self._agent.poll()
        if code is None:
            self._sample()
        return code

    def ask_places(self) -> None:
        """Have every living rank say where it stands, and wait a moment for the answers."""
        began = time.time()
        asked = [rank for rank, process in self._ranks.items() if process and process.is_running()]
        for rank in asked:
            ignore_gone(lambda rank=rank: self._ranks[rank].send_signal(STAND_SIGNAL))
        while asked and time.time() - began < _STAND_SECONDS:
            time.sleep(0.02)
            places = {rank: read_place(self._logs, rank) for rank in asked}
            asked = [rank for rank, place in places.items() if place and (place.unix_seconds or 0.0) < began]

    def end(self) -> None:
        """End every process of this run that is still alive: first asked, then killed."""
        self._take_census()
        alive = {*processes_of(str(self._run_dir)), *self._family}
        for process in alive:
            ignore_gone(process.terminate)
        deadline = time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < deadline and (self._agent.poll() is None or _living(alive)):
            time.sleep(0.02)
        for process in _living(alive):
            ignore_gone(process.kill)
        kill_all(str(self._run_dir))
        deadline = time.monotonic() + _GRACE_SECONDS
        while self._agent.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)

    @property
    def _logs(self) -> Path:
        return self._run_dir / "logs"

    def _sample(self) -> None:
        for rank, process in self._ranks.items():
            if process is None:
                place = read_place(self._logs, rank)
                self._ranks[rank] = place and ignore_gone(lambda pid=place.pid: psutil.Process(pid))
            elif memory := ignore_gone(process.memory_info):
                key = str(rank)
                self.rss_peak_bytes[key] = max(memory.rss, self.rss_peak_bytes.get(key, 0))
        if time.monotonic() > self._next_census:
            self._next_census = time.monotonic() + _CENSUS_SECONDS
            self._take_census()

    def _take_census(self) -> None:
        # What a rank starts with an environment of its own is found only through its parents, while they live.
        agent = None if self._agent.poll() is not None else ignore_gone(lambda: psutil.Process(self._agent.pid))
        for process in filter(None, [agent, *self._ranks.values()]):
            self._family |= {process, *(ignore_gone(lambda p=process: p.children(recursive=True)) or [])}


def _living(processes: set[psutil.Process]) -> set[psutil.Process]:
    return {
        process for process in processes if process.is_running() and ignore_gone(process.status) != psutil.STATUS_ZOMBIE
    }
