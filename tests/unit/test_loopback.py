"""The rendezvous of one machine, as torchrun uses it: found by name, listening on loopback, closed at the end."""

import os
import socket

import psutil
import pytest
from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousParameters, rendezvous_handler_registry

from fsdp2_lab.agent.loopback import use_loopback


def listening() -> list[tuple[str, int]]:
    """The address and port of every listening socket of this process."""
    sockets = psutil.Process().net_connections("inet")
    return [tuple(each.laddr) for each in sockets if each.status == psutil.CONN_LISTEN]


@pytest.fixture
def rendezvous():
    """What torchrun makes of the arguments that it is given."""
    use_loopback()
    given = dict(argument.removeprefix("--").split("=") for argument in use_loopback())  # a second time changes nothing
    nodes = int(given["nnodes"])
    parameters = RendezvousParameters(given["rdzv-backend"], given["rdzv-endpoint"], given["rdzv-id"], nodes, nodes)
    handler = rendezvous_handler_registry.create_handler(parameters)
    yield handler
    handler.shutdown()


def test_the_store_listens_on_loopback_where_ranks_are_told_to_look(rendezvous):
    before = listening()
    info = rendezvous.next_rendezvous()
    place = info.bootstrap_store_info
    new = [each for each in listening() if each not in before]
    assert new == [("127.0.0.1", place.master_port)] and place.master_addr == "127.0.0.1"
    assert (info.rank, info.world_size, rendezvous.use_agent_store) == (0, 1, True)
    TCPStore(place.master_addr, place.master_port, is_master=False).set("from a rank", "1")
    assert not info.store.check(["from a rank"])  # the agent's keys are apart


def test_ranks_started_again_find_an_empty_store(rendezvous):
    places = []
    for _ in range(2):
        info = rendezvous.next_rendezvous()
        assert not info.store.check(["role_info"])
        info.store.set("role_info", "1")
        places.append(info.bootstrap_store_info.master_port)
    assert places[0] != places[1]


def test_the_end_closes_its_port_and_each_descriptor(rendezvous):
    def held():
        return len(os.listdir("/proc/self/fd")), listening()

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("descriptors are counted on Linux")
    before = held()
    info = rendezvous.next_rendezvous()
    port = info.bootstrap_store_info.master_port
    del info
    assert not rendezvous.is_closed()
    assert rendezvous.shutdown() and rendezvous.is_closed()
    assert held() == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_each_launch_has_an_id_that_nobody_can_guess():
    ids = {argument for _ in range(3) for argument in use_loopback() if argument.startswith("--rdzv-id=")}
    assert len(ids) == 3 and all(len(each) == len("--rdzv-id=") + 36 for each in ids)
