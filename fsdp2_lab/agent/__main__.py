"""`python -m fsdp2_lab.agent` is `torchrun` that leaves no rank behind, however its launcher ends."""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from ..contract.errors import UsageError
from ..contract.processes import end_children, kill_all
from ..contract.record import read_launch, write_launch
from ..contract.workspace import PARENT_VARIABLE, RUN_DIR_VARIABLE
from . import guard


def run_agent(argv: list[str], handler=None) -> None:
    """Run torchrun with these arguments; `handler` starts the ranks, each a Python of its own unless given."""
    run_dir = os.environ[RUN_DIR_VARIABLE]
    guard.continue_with_parent()
    guard.watch_parent(int(os.environ[PARENT_VARIABLE]), lambda: _abandon(run_dir))
    if handler is None:
        os.environ[PARENT_VARIABLE] = str(os.getpid())  # of the ranks; a forked one has the server's

    from torch.distributed.run import main as torchrun

    from .handlers import RankHandler, use_handler
    from .loopback import use_loopback

    use_handler(handler or RankHandler)
    guard.adopt_orphans()
    try:
        torchrun([*use_loopback(), *argv])  # raises where a rank failed
    finally:
        end_children()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a third of a second earlier than by way of torch's modules, which have nothing more to do here


def _abandon(run_dir: str) -> None:
    kill_all(run_dir)
    end_children()
    with suppress(UsageError, OSError):
        launch = read_launch(Path(run_dir))
        if launch and launch.status == "running":
            launch.status = "interrupted"
            launch.seconds = max(0.0, time.time() - launch.started_unix_seconds)
            launch.explanation = ["What had started the launch was killed, so every rank was ended."]
            write_launch(Path(run_dir), launch)


if __name__ == "__main__":
    run_agent(sys.argv[1:])
