"""The process in which a script is played: reads a request from its command line, prints what it found as JSON."""

import json
import os
import resource
import sys
import threading

from ..contract.errors import UsageError


def main() -> None:
    threading.Thread(target=_end_with_the_caller, daemon=True).start()
    request = json.loads(sys.argv[1])
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the script prints is no part of the answer
    try:
        if request.pop("mode") == "rehearse":
            from .real import rehearse as play
        else:
            from .depths import play_and_extend as play
        told = play(**request) | {"rss_peak_bytes": _rss_peak_bytes()}
    except UsageError as error:
        told = {"error": str(error)}
    answer.write(json.dumps(told))
    answer.flush()
    os._exit(0)  # a fake process group's threads and the script's exit handlers have nothing left to do


def _end_with_the_caller() -> None:
    os.read(0, 1)  # nothing is ever written there; it ends when the caller does
    os._exit(1)


def _rss_peak_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    main()
