"""A rank says where it stands: its Python frames, and its last collectives from torch's flight recorder.

The one file on the private names of the flight recorder and of torch's table of groups.
"""

import faulthandler
import json
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path

from ..contract import places
from ..contract.errors import UsageError
from ..contract.places import STAND_SIGNAL, Collective, Place, stack_file, write_place
from ..contract.record import RankError


class Stand:
    """Armed once per rank: its stacks go to the logs on a fatal signal, when the agent ends it, and when asked."""

    def __init__(self, logs: Path, rank: int):
        self.pid = os.getpid()
        self._logs, self._place = logs, Place(rank, self.pid)
        self._file = stack_file(logs, rank).open("w")
        self._size = 0
        faulthandler.enable(self._file)
        faulthandler.register(STAND_SIGNAL, self._file)
        faulthandler.register(signal.SIGTERM, self._file, chain=True)
        os.register_at_fork(after_in_child=_disarm)
        write_place(logs, self._place)

    def tell_if_asked(self) -> None:
        """Write this rank's place where a signal has made the stack file grow; from a thread that never waits."""
        try:
            size = os.fstat(self._file.fileno()).st_size
        except OSError:  # the script has closed all descriptors that it did not know
            return
        if size > self._size:
            self._size = size
            frame = sys._current_frames().get(threading.main_thread().ident)
            # None: at exit C code may have called C code, and nothing of the script is left.
            self._tell(traceback.extract_stack(frame) if frame else traceback.StackSummary())

    def tell_error(self, error: BaseException) -> None:
        """Write what this rank raised, and where."""
        text = "".join(traceback.format_exception(error))
        self._place.error = RankError(
            self._place.rank,
            type(error).__name__,
            str(error),
            text,
            unix_seconds=time.time(),
            monotonic_seconds=time.monotonic(),
        )
        self._tell(traceback.extract_tb(error.__traceback__))

    def tell_end(self) -> None:
        """Write that the script has come to its last line."""
        self._place.finished = True
        with suppress(UsageError):
            write_place(self._logs, self._place)

    def _tell(self, stack: traceback.StackSummary) -> None:
        self._place.unix_seconds = time.time()
        self._place.stage, self._place.step = places.stage_and_step()
        self._place.frames = [(frame.filename, frame.lineno, frame.name) for frame in stack]
        with suppress(Exception):  # torch may have changed its trace; where the rank stands is still worth telling
            self._place.collectives = last_collectives()
        with suppress(Exception):  # a full disk
            write_place(self._logs, self._place)


def last_collectives() -> list[Collective]:
    """The latest collective of each process group; empty where torch is not loaded or none was recorded."""
    c10d = sys.modules.get("torch._C._distributed_c10d")
    if c10d is None:
        return []
    trace = json.loads(c10d._dump_fr_trace_json(includeCollectives=True, onlyActive=False))
    members = _members_of_groups()
    latest = {entry["process_group"][0]: entry for entry in trace.get("entries", []) if not entry["is_p2p"]}
    return [
        Collective(
            group=group,
            number=entry["collective_seq_id"],
            name=entry["profiling_name"].partition(":")[2],
            sizes=entry["input_sizes"],
            waiting=not entry["retired"],
            began_unix_seconds=entry["time_created_ns"] / 1e9,
            members=members.get(group, []),
        )
        for group, entry in latest.items()
    ]


def _members_of_groups() -> dict[str, list[int]]:
    # The trace names them for NCCL alone.
    c10d = sys.modules["torch.distributed.distributed_c10d"]
    return {name: c10d.get_process_group_ranks(group) for group, name in c10d._world.pg_names.items()}


def _disarm() -> None:
    # A data loader's worker is not the rank: what ends it is no news.
    faulthandler.unregister(STAND_SIGNAL)
    faulthandler.unregister(signal.SIGTERM)
