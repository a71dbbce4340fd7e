"""A server of warm ranks: it has imported what every rank imports, and forks agents and ranks that start at once.

It belongs to one kernel: they share an unnamed socket, and the server ends when the other end closes. It holds
nothing but imports, runs no tensor operation and never touches CUDA, so that a fork of it is as good as a new
Python. Linux only.
"""

import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from ..contract.marking import show_run_dir
from ..contract.messages import receive, send
from ..contract.processes import end_children, end_descendants, ignore_gone
from ..contract.workspace import PARENT_VARIABLE, RUN_DIR_VARIABLE
from . import guard
from .fitness import hidden_beside, stale_since

# Third-party only: the project's own modules are read anew by every rank.
PRELOADED = (
    "torch",
    "torch.distributed.run",
    "torch.distributed.fsdp",
    "torch.distributed.device_mesh",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.elastic.multiprocessing.subprocess_handler",
    "torch.profiler",
    "torch.utils.checkpoint",
    "transformers",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
    "transformers.models.byt5.tokenization_byt5",
    "accelerate",
    "psutil",
)
_LOOK_SECONDS = 0.5  # between two looks at whether the kernel still lives

Role = Callable[[], None]


def main(argv: list[str]) -> None:
    """Serve until the kernel is gone. In a forked child this goes on as an agent or a rank, to its own end."""
    kernel, kernel_pid = socket.socket(fileno=int(argv[0])), int(argv[1])
    guard.end_with_parent(kernel_pid)
    before, began = dict(os.environ), time.time()
    for name in PRELOADED:
        importlib.import_module(name)
    set_by_imports = {name: value for name, value in os.environ.items() if name not in before}
    signal.signal(signal.SIGCONT, signal.SIG_DFL)  # from here on it looks by itself, and ends what ranks have started
    gc.collect()
    gc.freeze()  # a child's collector then leaves the shared pages alone
    role = Server(kernel, kernel_pid, set_by_imports, began).serve()
    role()


class Server:
    """Answers the kernel, which asks for agents, and agents, which ask for ranks; tells both how these end."""

    def __init__(self, kernel: socket.socket, kernel_pid: int, set_by_imports: dict[str, str], began: float):
        self._kernel_pid, self._set_by_imports = kernel_pid, set_by_imports
        self._began = began  # before the imports, so that what changed during them counts as changed
        self._selector = selectors.DefaultSelector()
        self._selector.register(kernel, selectors.EVENT_READ, self._serve_kernel)
        self._children: set[int] = set()  # agents and ranks; any other child is what a rank left
        self._ranks: dict[socket.socket, set[int]] = {}  # by the agent that asked for them
        guard.adopt_orphans()
        send(kernel, {"ready": True})

    def serve(self) -> Role:
        """Returns in a forked child only, with what that child is to do; the server itself exits here."""
        while os.getppid() == self._kernel_pid:
            for key, _ in self._selector.select(_LOOK_SECONDS):
                if role := key.data(key.fileobj):
                    return role
        self._leave()

    def _leave(self) -> None:
        for pid in self._children:  # theirs are not found any more once they have ended
            if process := ignore_gone(lambda pid=pid: psutil.Process(pid)):
                end_descendants(process)
        os._exit(0)  # agents see it, end their ranks and say so in the record

    def _serve_kernel(self, kernel: socket.socket) -> Role | None:
        if (request := receive(kernel)) is None:
            self._leave()
        if reason := stale_since(self._began):
            send(kernel, {"id": request["id"], "refused": reason})
            return None
        if reason := hidden_beside(Path(request["script"])):
            send(kernel, {"id": request["id"], "refused": reason, "for_good": True})
            return None
        ours, agents = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            ours.close()
            return lambda: self._become_agent(request, agents)
        agents.close()
        self._selector.register(ours, selectors.EVENT_READ, self._serve_agent)
        self._ranks[ours] = set()
        self._watch(pid, kernel, {"id": request["id"]})
        return None

    def _serve_agent(self, agent: socket.socket) -> Role | None:
        if (request := receive(agent)) is None:  # it has ended
            self._selector.unregister(agent)
            agent.close()
            for rank in self._ranks.pop(agent) & self._children:  # it was killed before it could end them
                os.kill(rank, signal.SIGKILL)
            return None
        pid = os.fork()
        if pid == 0:
            return lambda: self._become_rank(request)
        self._ranks[agent].add(pid)
        self._watch(pid, agent, {"rank": request["environment"]["RANK"]})
        return None

    def _watch(self, pid: int, asker: socket.socket, name: dict) -> None:
        self._children.add(pid)
        send(asker, name | {"pid": pid})

        def ended(pidfd: int) -> None:
            self._selector.unregister(pidfd)
            os.close(pidfd)
            _, status = os.waitpid(pid, 0)
            self._children.remove(pid)
            end_children(but=self._children)
            self._bury_orphans()
            send(asker, name | {"code": os.waitstatus_to_exitcode(status)})

        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, ended)

    def _bury_orphans(self) -> None:
        for process in psutil.Process().children():
            if process.pid not in self._children:
                with suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)

    def _become_agent(self, request: dict, server: socket.socket) -> None:
        self._leave_server(request)
        from .__main__ import run_agent
        from .forked import forking_through

        run_agent(request["argv"], forking_through(server))

    def _become_rank(self, request: dict) -> None:
        self._leave_server(request)
        import tempfile

        import numpy
        import torch

        from .worker import main as worker

        numpy.random.seed()  # Python's own generator is seeded anew by the fork itself
        torch.default_generator.seed()  # else ranks that forget a seed would agree, and only when warm
        tempfile.tempdir = None  # found anew from this rank's environment
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # was read at import, before this rank had it
        worker(request["argv"])

    def _leave_server(self, request: dict) -> None:
        server = os.getppid()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close() if isinstance(key.fileobj, socket.socket) else os.close(key.fileobj)
        self._selector.close()
        os.setsid()
        os.chdir(request["directory"])
        for number, name in ((1, "stdout"), (2, "stderr")):
            file = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            os.dup2(file, number)
            os.close(file)
        show_run_dir(request["environment"][RUN_DIR_VARIABLE])
        os.environ.clear()
        os.environ.update(self._set_by_imports | request["environment"])
        os.environ[PARENT_VARIABLE] = str(server)


if __name__ == "__main__":
    main(sys.argv[1:])
