"""How torchrun's agent starts, watches and ends a rank. The one file on torchrun's private names.

`SubprocessHandler` is torch's; ours keeps when and how each rank ended, has every rank say where it stands
before it is ended, and waits seconds, not half a minute, for ranks that do not listen.
"""

import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from torch.distributed.elastic.multiprocessing import api
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

from ..contract.errors import UsageError
from ..contract.places import STAND_SIGNAL, Exit, read_place, write_exits
from ..contract.workspace import RUN_DIR_VARIABLE

GRACE_SECONDS = 3.0  # between asking a rank to end and ending it
_STAND_SECONDS = 0.5  # for all ranks to say where they stand


def use_handler(handler: type[SubprocessHandler]) -> None:
    """Have the agent in this process start its ranks through `handler`."""
    api.get_subprocess_handler = handler


class RankHandler(SubprocessHandler):
    """One rank of this agent, as torch uses it: `proc` with `pid`, `poll()`, `wait()`; and `close()`."""

    _ranks: ClassVar[list["RankHandler"]] = []
    _exits: ClassVar[dict[str, Exit]] = {}
    _asked: ClassVar[bool] = False

    def _popen(self, args: tuple, env: dict[str, str]):
        self._rank = env["RANK"]
        self._ranks.append(self)
        return self._start(args, env)

    def _start(self, args: tuple, env: dict[str, str]):
        return _RankProcess(
            args,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=self._stdout,
            stderr=self._stderr,
            start_new_session=True,
            on_exit=self._note_exit,
        )

    def _note_exit(self, code: int) -> None:
        if self._rank not in self._exits:
            self._exits[self._rank] = Exit(code, time.monotonic(), RankHandler._asked)
            with suppress(UsageError):  # a full disk
                write_exits(_logs(), self._exits)

    def close(self, death_sig: signal.Signals | None = None) -> None:
        """End this rank, once every rank has said where it stands: with a signal, and soon after without asking."""
        if not RankHandler._asked:
            RankHandler._asked = True
            self._have_all_say_where_they_stand()
        with suppress(ProcessLookupError):
            super().close(death_sig)
        timer = threading.Timer(GRACE_SECONDS, self._kill)
        timer.daemon = True
        timer.start()

    def _kill(self) -> None:
        if self.proc.poll() is None:
            os.killpg(self.proc.pid, signal.SIGKILL)

    def _have_all_say_where_they_stand(self) -> None:
        began = time.time()
        places = {each: read_place(_logs(), each._rank) for each in self._ranks if each.proc.poll() is None}
        waiting = {each for each, place in places.items() if place}  # the others do not listen yet
        for each in waiting:
            os.kill(each.proc.pid, STAND_SIGNAL)
        while waiting and time.time() - began < _STAND_SECONDS:
            time.sleep(0.02)
            waiting = {each for each in waiting if not _told(each._rank, began)}


class _RankProcess(subprocess.Popen):
    def __init__(self, args: tuple, *, on_exit, **options):
        self._on_exit = on_exit
        super().__init__(args, **options)

    def poll(self) -> int | None:
        code = super().poll()
        if code is not None:
            self._on_exit(code)
        return code


def _told(rank: str, since: float) -> bool:
    place = read_place(_logs(), rank)
    return bool(place and place.unix_seconds and place.unix_seconds >= since)


def _logs() -> Path:
    return Path(os.environ[RUN_DIR_VARIABLE], "logs")
