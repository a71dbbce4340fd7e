"""How a rank starts: under a guard, able to say where it stands, and then the script as Python itself runs it."""

import atexit
import os
import sys
import threading
import traceback
import types
from contextlib import suppress
from pathlib import Path

from ..contract.workspace import PARENT_VARIABLE, RUN_DIR_VARIABLE
from . import guard
from .stand import Stand


def main(argv: list[str]) -> None:
    """Run `argv[0]` as this rank's program, with the rest as its command line."""
    guard.die_with_parent()
    guard.adopt_orphans()
    stand = Stand(Path(os.environ[RUN_DIR_VARIABLE], "logs"), int(os.environ["RANK"]))
    guard.watch_parent(int(os.environ.pop(PARENT_VARIABLE)), each_time=stand.tell_if_asked)
    _notice_failed_exit_handlers(stand)
    threading.excepthook = lambda failed: _on_thread_exception(stand, failed)
    sys.argv = argv
    if not sys.flags.safe_path:
        sys.path[0] = str(Path(argv[0]).parent)
    try:
        run_script(argv[0])
        if stand.pid == os.getpid():
            stand.tell_end()
    except SystemExit as ended:
        if isinstance(ended.code, int) and ended.code and ended.code % 256 == 0:
            sys.exit(1)  # the system keeps the last 8 bits, and would see a rank that ended well
        raise
    except BaseException as error:
        _report(stand, error.with_traceback(error.__traceback__.tb_next.tb_next))  # without main and run_script
        sys.exit(1)


def run_script(script: str) -> None:
    """Run a file as `__main__`, and leave it there: what it registers to run at exit still finds its names."""
    main_module = types.ModuleType("__main__")
    main_module.__file__, main_module.__builtins__ = script, __builtins__
    sys.modules["__main__"] = main_module
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec")
    exec(code, main_module.__dict__)


def _report(stand: Stand, error: BaseException) -> None:
    if stand.pid != os.getpid():  # a child that the script has forked is not the rank
        traceback.print_exception(error)
        return
    stand.tell_error(error)
    # The script may have closed what these write to, or removed its folder: that is no news beside the error.
    with suppress(Exception):
        sys.excepthook(type(error), error, error.__traceback__)
    with suppress(Exception):
        # What torch's own @record does around a main function: the agent prints it as the root cause.
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler

        get_error_handler().record_exception(error)


def _notice_failed_exit_handlers(stand: Stand) -> None:
    # Python prints what a function registered with `atexit` raises, and ends with exit code 0.
    failed, usual = [], sys.unraisablehook

    def on_unraisable(unraisable) -> None:
        if "atexit callback" not in (unraisable.err_msg or "") or unraisable.exc_value is None:
            usual(unraisable)
            return
        failed.append(unraisable.exc_value)
        _report(stand, unraisable.exc_value)

    def end_as_failed() -> None:
        if failed:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)

    sys.unraisablehook = on_unraisable
    atexit.register(end_as_failed)  # before the script's own, so that it comes after them


def _on_thread_exception(stand: Stand, failed) -> None:
    # Python would print it and go on; the run would look well, or hang for want of what the thread was to bring.
    if failed.exc_type is SystemExit:
        return
    _report(stand, failed.exc_value)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
