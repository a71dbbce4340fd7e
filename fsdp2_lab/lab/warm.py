"""Warm starts: this process's own server of ranks, started on first use and begun afresh when it has gone stale."""

import atexit
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from ..contract.marking import ROOM
from ..contract.messages import receive_now, send
from .machine import machine

WARM_VARIABLE = "FSDP2_LAB_WARM"
_READY_SECONDS = 120.0
_ANSWER_SECONDS = 10.0  # to fork an agent; a server that is stopped or stuck has not answered by then
_END_SECONDS = 2.0
# What is read while modules are imported; a change of one asks for a new server.
_READ_AT_IMPORT = (
    *("TORCH", "PYTORCH", "PYTHON", "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "ATEN_", "LD_", "LANG", "LC_"),
    *("HF_", "HUGGING", "TRANSFORMERS_", "ACCELERATE_", "SAFETENSORS_", "TOKENIZERS_", "XDG_", "TZ", "HOME", "USE_"),
    *("MALLOC_", "GLIBC_", "DNNL_", "ONEDNN_", "TQDM_", "NPY_", "TMP", "TEMP"),
)

_current: "WarmServer | None" = None
_lock = threading.Lock()


class NotWarm(Exception):
    """A launch cannot start warm; the message says why in one line. `for_good`: nor with a new server."""

    def __init__(self, reason: str, for_good: bool = False):
        super().__init__(reason)
        self.for_good = for_good


def why_cold(warm: bool | None) -> str | None:
    """Why a launch starts cold; `None` where it can start warm. `warm` is what the caller asked for, if anything."""
    if warm is False:
        return "warm=False"
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return f"forking ranks is not safe on {sys.platform}"
    if warm is None and os.environ.get(WARM_VARIABLE, "1") == "0":
        return f"{WARM_VARIABLE}=0"
    if warm is None and machine().gpus:
        return "warm ranks have not been tried with CUDA; warm=True asks for them"
    return None


def prepare() -> None:
    """Start this process's server in the background, where launches would use one."""
    if why_cold(None) is None:
        _server()


def wait_until_ready() -> None:
    """Wait until this process's server has imported everything. Raises `NotWarm` where it cannot serve."""
    _server().wait_until_ready()


def start_warm_agent(argv: list[str], script: Path, environment: dict[str, str], log: Path) -> "WarmAgent":
    """Have torchrun's agent forked by the server. Raises `NotWarm` where it refuses twice."""
    request = {
        "argv": argv,
        "script": str(script),
        "environment": environment,
        "directory": os.getcwd(),
        "stdout": str(log),
    }
    request["stderr"] = request["stdout"]
    server = _server()
    try:
        return server.fork(request)
    except NotWarm as not_warm:
        if not_warm.for_good:
            raise
        _retire(server)  # it has gone stale, or has died: the next one has imported what is there now
    return _server().fork(request)


def stop() -> None:
    """End this process's server, if it has one."""
    global _current
    with _lock:
        if _current:
            _current.close()
        _current = None


def _retire(server: "WarmServer") -> None:
    global _current
    with _lock:
        server.retire()
        if _current is server:
            _current = None


def _server() -> "WarmServer":
    global _current
    with _lock:
        if _current and not _current.fits():
            _current.retire()
            _current = None
        if _current is None:
            _current = WarmServer()
        return _current


class WarmServer:
    """The client's end of one server."""

    def __init__(self):
        self._pid, self._fingerprint = os.getpid(), _fingerprint()
        self._answers: dict[int, dict] = {}
        self._next_id, self._lock = 0, threading.Lock()
        self._ready = self._gone = self._retired = False
        self._running: set[int] = set()  # numbers of agents that have not ended
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-m", "fsdp2_lab.agent.server", str(theirs.fileno()), str(os.getpid())],
                # One thread: what a rank has is set when it starts.
                env=dict(os.environ) | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | ROOM,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        atexit.register(self.close)

    def fits(self) -> bool:
        """Whether it lives, is this process's own, and has imported under the environment of now."""
        self._read()
        return self._pid == os.getpid() and not self._gone and self._fingerprint == _fingerprint()

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while not self._ready:
            self._read()
            if self._gone or time.monotonic() > deadline:
                raise NotWarm("the server of warm ranks did not start")
            time.sleep(0.01)

    def fork(self, request: dict) -> "WarmAgent":
        self.wait_until_ready()
        with self._lock:
            number, self._next_id = self._next_id, self._next_id + 1
            self._running.add(number)
        try:
            send(self._socket, request | {"id": number})
        except OSError as error:
            raise NotWarm(f"the server of warm ranks cannot be asked ({error.strerror})") from None
        deadline = time.monotonic() + _ANSWER_SECONDS
        while not (answer := self.answer(number)):
            if self._gone:
                raise NotWarm("the server of warm ranks has ended")
            if time.monotonic() > deadline:
                self.close()  # with what it may fork yet
                raise NotWarm("the server of warm ranks does not answer")
            time.sleep(0.002)
        if reason := answer.get("refused"):
            raise NotWarm(reason, "for_good" in answer)
        return WarmAgent(self, number, answer["pid"])

    def answer(self, number: int) -> dict | None:
        """All that the server has said about one agent so far."""
        self._read()
        return self._answers.get(number)

    @property
    def gone(self) -> bool:
        return self._gone

    def retire(self) -> None:
        """Take no new launch, and close once those of other threads have ended."""
        self._retired = True
        self.close_if_idle()

    def close_if_idle(self) -> None:
        """Close once it is retired and no launch runs on it any more."""
        if self._retired and (self._gone or not self._running):
            self.close()

    def close(self) -> None:
        """Hang up: the server ends, and with it what it forked."""
        atexit.unregister(self.close)
        self._socket.close()
        self._gone = True
        if self._pid == os.getpid():
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:  # it is stopped, or imports still
                self._process.kill()
                self._process.wait()

    def _read(self) -> None:
        with self._lock:
            try:
                while not self._gone and (message := receive_now(self._socket)):
                    if message.get("ready"):
                        self._ready = True
                    else:
                        self._answers.setdefault(message["id"], {}).update(message)
                        if "code" in message or "refused" in message:
                            self._running.discard(message["id"])
            except (EOFError, OSError):
                self._gone = True


class WarmAgent:
    """torchrun's agent, forked by the server."""

    def __init__(self, server: WarmServer, number: int, pid: int):
        self._server, self._number, self.pid = server, number, pid

    def poll(self) -> int | None:
        answer = self._server.answer(self._number)
        code = answer.get("code", -9 if self._server.gone else None)
        if code is not None:
            self._server.close_if_idle()
        return code


def _fingerprint() -> tuple:
    matters = {name: value for name, value in os.environ.items() if name.startswith(_READ_AT_IMPORT)}
    return (sys.executable, tuple(sorted(matters.items())), _inherited())


def _inherited() -> tuple:
    # What a new Python would have from us, and a fork has from the server.
    import resource

    limits = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
    status = Path("/proc/self/status").read_text()
    umask = re.search(r"^Umask:\s*(\d+)", status, re.MULTILINE)
    return (
        umask and umask[1],
        tuple(resource.getrlimit(each) for each in limits),
        tuple(sorted(os.sched_getaffinity(0))),
        os.getpriority(os.PRIO_PROCESS, 0),
    )
