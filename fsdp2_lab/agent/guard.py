"""A process of a launch ends when its parent does, in whatever way that died."""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

_PERIOD_SECONDS = 0.1
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36


def watch_parent(
    parent_pid: int,
    on_death: Callable[[], None] = lambda: None,
    each_time: Callable[[], None] = lambda: None,
) -> None:
    """Watch the parent from a thread: once it is gone, call `on_death` and end this process.

    `each_time` is called ten times a second, also while the main thread waits in a collective.
    """

    def watch() -> None:
        while os.getppid() == parent_pid:
            each_time()
            time.sleep(_PERIOD_SECONDS)
        on_death()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="fsdp2-lab-guard", daemon=True).start()


def die_with_parent() -> None:
    """Have the kernel kill this process with its parent, even while C code holds Python's lock. Linux only."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_with_parent(parent_pid: int) -> None:
    """Have this process end soon after its parent, though one thread alone is busy with imports. Linux only."""

    def look(*_) -> None:
        if os.getppid() != parent_pid:
            os._exit(0)

    # Death of the parent's thread that started us sends this, too: so it is no signal that ends a process.
    signal.signal(signal.SIGCONT, look)
    continue_with_parent()
    look()


def continue_with_parent() -> None:
    """Have this process go on when its parent ends, should it be stopped then. Linux only."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that a double fork hides nobody. Linux only."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)
