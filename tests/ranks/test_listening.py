"""While ranks run, nothing of a launch listens where other machines could reach it."""

import ipaddress
import sys

import psutil
import pytest

from fsdp2_lab.contract.record import read_records
from fsdp2_lab.lab import warm
from fsdp2_lab.lab.launcher import execute
from fsdp2_lab.lab.live.progress import Progress

RANKS = 2
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="ranks are forked on Linux only")


class LookAtSockets(Progress):
    """Once every rank has joined the process group, notes who listens where, and ends the wait."""

    def start(self, launch, run_dir):
        self.run_dir, self.listening = run_dir, {}

    def update(self):
        if self.listening or [bool(record.values) for record in read_records(self.run_dir)] != [True] * RANKS:
            return
        for process in psutil.Process().children(recursive=True):
            sockets = process.net_connections("inet")
            self.listening[process.pid] = [each.laddr.ip for each in sockets if each.status == psutil.CONN_LISTEN]
        self.ranks = {record.pid for record in read_records(self.run_dir)}
        (self.run_dir / "go").touch()


@pytest.fixture
def look(home, scripts):
    """The sockets of a launch, cold or warm; the warm ranks' server ends with the test."""

    def run(how: str) -> LookAtSockets:
        seen = LookAtSockets()
        ended = execute(scripts / "mirror.py", RANKS, ["hold"], 60, seen, warm=how == "warm")
        assert ended.status == "ok", ended.failure()
        assert (ended.launch.cold_because is None) == (how == "warm")
        return seen

    yield run
    warm.stop()


@pytest.mark.parametrize("how", ["cold", pytest.param("warm", marks=LINUX)])
def test_every_listening_socket_is_on_loopback(how, look):
    seen = look(how)
    others = RANKS + 1 + (how == "warm")  # the ranks, the agent and the server
    assert len(seen.listening) >= others and seen.ranks <= set(seen.listening)
    addresses = [address for each in seen.listening.values() for address in each]
    assert len(addresses) >= 1 + RANKS  # a store, and gloo in each rank
    assert {address for address in addresses if not ipaddress.ip_address(address).is_loopback} == set()


def test_also_where_the_environment_would_have_rank_zero_serve(look, monkeypatch):
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    assert {address for each in look("cold").listening.values() for address in each} == {"127.0.0.1"}
