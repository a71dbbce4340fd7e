"""Interrupts held back while ranks are started or ended, so that none is left between two lines of ours."""

import signal
import threading
from contextlib import contextmanager

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def deferred(then_raise: bool = True):
    """Hold back what would raise `KeyboardInterrupt` here; it is raised once, at the end of the block, or dropped."""
    # Only the main thread may set handlers, and only it is interrupted.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived = []
    held = {each: signal.getsignal(each) for each in _SIGNALS if signal.getsignal(each) is signal.default_int_handler}
    for each in held:
        signal.signal(each, lambda number, frame: arrived.append(number))
    try:
        yield
    finally:
        for each, handler in held.items():
            signal.signal(each, handler)
    if arrived and then_raise:
        raise KeyboardInterrupt
