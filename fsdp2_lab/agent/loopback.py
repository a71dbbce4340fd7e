"""Where ranks of one machine meet: a store that listens on loopback alone.

torchrun's own rendezvous makes two, and both listen on all interfaces whatever address it is given. This one is
made as torch lets anybody make one: a `RendezvousHandler` in its registry, chosen by name. One agent needs no
waiting for others, so that the whole of it is a store on a port that the kernel chooses.
"""

import socket
import uuid

from torch.distributed import PrefixStore, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

_ADDRESS = "127.0.0.1"
_NAME = "loopback"


def use_loopback() -> list[str]:
    """Make this rendezvous known to torchrun in this process; the arguments that choose it, for `--standalone`."""
    rendezvous_handler_registry.register(_NAME, LoopbackRendezvous)
    meeting = [f"--rdzv-backend={_NAME}", f"--rdzv-endpoint={_ADDRESS}:0", f"--rdzv-id={uuid.uuid4()}"]
    return [*meeting, "--nnodes=1"]  # as --standalone means it: a port that is free, an id drawn, one machine


class LoopbackRendezvous(RendezvousHandler):
    """The meeting of one agent with itself; its ranks use the agent's store."""

    use_agent_store = True

    def __init__(self, parameters: RendezvousParameters):
        self._run_id = parameters.run_id
        self._store: TCPStore | None = None
        self._closed = False

    def next_rendezvous(self) -> RendezvousInfo:
        """A store of its own for each start of the ranks, so that no key of an earlier one is left."""
        self._store = loopback_store()
        meeting_place = RendezvousStoreInfo(_ADDRESS, self._store.port)
        return RendezvousInfo(PrefixStore("agent", self._store), 0, 1, meeting_place)

    def get_backend(self) -> str:
        return _NAME

    def get_run_id(self) -> str:
        return self._run_id

    def is_closed(self) -> bool:
        return self._closed

    def set_closed(self) -> None:
        self._closed = True

    def num_nodes_waiting(self) -> int:
        return 0

    def shutdown(self) -> bool:
        self._closed, self._store = True, None
        return True


def loopback_store() -> TCPStore:
    """A store and its server in this process. Raises `OSError` where there is no descriptor or port for it."""
    # TCPStore takes no address to listen on, but it does take a socket; from then on the descriptor is its own.
    listening = socket.create_server((_ADDRESS, 0))
    port = listening.getsockname()[1]
    return TCPStore(_ADDRESS, port, is_master=True, master_listen_fd=listening.detach())
