"""A double fork with a session of its own and a cleared environment hides nobody, however a launch ends."""

import os
import signal
import sys

import psutil
import pytest
from harness import SCRIPTS

ORPHAN_SECONDS = 10.0


def end_one(role: str, lab, launcher: int) -> None:
    """Kill what stands between a launcher and its ranks: torchrun's agent, or the server of warm ranks."""
    parent = psutil.Process(lab.reached[0]).parent()
    if role == "agent" and parent.ppid() == launcher and "agent.server" in " ".join(parent.cmdline()):
        (parent,) = [each for each in parent.children() if each.pid not in lab.reached.values()]
    parent.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")
@pytest.mark.parametrize("how", ["cold", "warm"])
@pytest.mark.parametrize("end", ["well", "deadline", "interrupt", "launcher", "agent", "server"])
def test_orphans_end_with_their_launch(end, how, lab):
    if (end, how) == ("server", "cold"):
        pytest.skip("a cold launch has no server")
    lab.environment["FSDP2_LAB_FAULT"] = f"{'end' if end == 'well' else 'wait'}:{lab.folder}"
    seconds = 15 if end == "deadline" else 60
    process = lab.start([sys.executable, SCRIPTS / "launch_one.py", SCRIPTS / "orphans.py", how, str(seconds)])
    lab.wait_until_reached(process)
    orphans = [psutil.Process(int(sign.read_text())) for sign in lab.folder.glob("left-*")]
    assert len(orphans) == 2
    if end in ("launcher", "interrupt"):
        os.kill(process.pid, signal.SIGKILL if end == "launcher" else signal.SIGINT)
    elif end in ("agent", "server"):
        end_one(end, lab, process.pid)
    ended = lab.end(process, 40)
    left = lab.watch.left(ORPHAN_SECONDS if end == "launcher" else 2.0)
    assert left == [], ended.said
    assert (ended.code == 0) == (end == "well"), ended.said
