"""Ranks that torchrun's agent has forked for it by the server of warm ranks, in place of starting a Python."""

import os
import socket
import subprocess
import time

from ..contract.messages import receive, receive_now, send
from .handlers import RankHandler

_WORKER = 4  # arguments before the script: python -u -m fsdp2_lab.agent.worker


def forking_through(server: socket.socket) -> type[RankHandler]:
    """A handler that asks the server at the other end of this socket for its ranks."""
    ended: dict[str, int] = {}  # rank → exit code

    class ForkedRank(RankHandler):
        def _start(self, args: tuple, env: dict[str, str]):
            send(
                server,
                {
                    "argv": args[_WORKER:],
                    "environment": env,
                    "directory": os.getcwd(),
                    "stdout": self._stdout.name,
                    "stderr": self._stderr.name,
                },
            )
            while "pid" not in (answer := receive(server)):  # meanwhile another rank may end
                ended[answer["rank"]] = answer["code"]
            return _Forked(answer["pid"], self._exit_code, self._note_exit)

        def _exit_code(self) -> int | None:
            while answer := receive_now(server):
                ended[answer["rank"]] = answer["code"]
            return ended.get(self._rank)

    return ForkedRank


class _Forked:
    """The part of `subprocess.Popen` that torch uses, for a process that is the server's child."""

    def __init__(self, pid: int, exit_code, on_exit):
        self.pid, self._exit_code, self._on_exit = pid, exit_code, on_exit

    def poll(self) -> int | None:
        code = self._exit_code()
        if code is not None:
            self._on_exit(code)
        return code

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(0.01)
        return code
