"""Warm ranks whose server or agent is stopped, stuck, or shared by two threads: nobody waits, nobody is left."""

import subprocess
import sys
import time

import psutil
import pytest
from harness import SCRIPTS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ranks are forked on Linux only")
ORPHAN_SECONDS = 10.0


def start(lab, how: str, seconds: float = 60) -> subprocess.Popen:
    lab.environment["FSDP2_LAB_FAULT"] = f"wait:{lab.folder}"
    return lab.start([sys.executable, SCRIPTS / "launch_one.py", SCRIPTS / "foreign_faults.py", how, str(seconds)])


@pytest.mark.parametrize("how", ["cold", "warm"])
def test_a_stopped_parent_of_the_ranks_does_not_keep_them_alive(how, lab):
    process = start(lab, how)
    lab.wait_until_reached(process)
    psutil.Process(lab.reached[0]).parent().suspend()
    process.kill()
    process.wait()
    lab.adopt()
    assert lab.watch.left(ORPHAN_SECONDS) == []


def test_a_server_ends_while_it_imports_when_its_kernel_is_killed(lab):
    process = start(lab, "warm")
    deadline = time.monotonic() + 20
    while not (children := psutil.Process(process.pid).children()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(1.0)
    assert children[0].is_running()
    process.kill()
    process.wait()
    assert lab.watch.left(2.0) == []


def test_a_stopped_server_is_replaced(lab):
    ended = lab.run_python("in_one_kernel.py", "stopped-server")
    assert ended.code == 0, ended.said


def test_a_thread_whose_server_has_gone_stale_leaves_the_launch_of_another_alone(lab):
    ended = lab.run_python("in_one_kernel.py", "two-threads")
    assert ended.code == 0, ended.said
    assert lab.watch.left(2.0) == [], ended.said


def test_ranks_of_a_killed_agent_do_not_outlive_it(lab):
    ended = lab.run_python("in_one_kernel.py", "killed-agent")
    assert ended.code == 0, ended.said
    assert lab.watch.left(2.0) == [], ended.said
