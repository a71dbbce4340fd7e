"""A machine in a bad way: taken ports, no names, no descriptors, a clock that jumps, disks that are full or slow."""

import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from harness import SCRIPTS
from promises import not_well, nothing_left, nothing_lost

FAULTS, FOREIGN = SCRIPTS / "faults.py", SCRIPTS / "foreign_faults.py"
BEND = Path(__file__).parent / "bend"


@pytest.fixture
def mounted():
    """Mounts a small file system for a test; skips where a mount is not permitted."""
    places = []

    def mount(place: Path, options: str) -> None:
        if not shutil.which("mount") or sys.platform != "linux":
            pytest.skip("no tmpfs here: this test needs Linux")
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(place)]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("mounting a tmpfs is not permitted here: this test needs root")
        places.append(place)

    yield mount
    for place in places:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def bend(lab, how: str) -> None:
    lab.environment["FSDP2_LAB_BEND"] = how
    lab.environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(BEND), lab.environment.get("PYTHONPATH")]))


@contextmanager
def occupied(port: int = 0):
    with socket.socket() as taken:
        try:
            taken.bind(("0.0.0.0", port))
            taken.listen()
        except OSError:
            assert port  # somebody else has it already: as good
        yield taken.getsockname()[1] or port


@pytest.mark.fast
def test_ports_that_are_taken_and_a_job_that_surrounds_it_do_not_matter(lab):
    with occupied(29500), occupied() as other:
        lab.environment |= {"MASTER_PORT": str(other), "MASTER_ADDR": "192.0.2.1"}
        lab.environment |= {"RANK": "5", "LOCAL_RANK": "5", "WORLD_SIZE": "7", "TORCHELASTIC_RUN_ID": "another"}
        ended = lab.run(FAULTS, "well")
    broken = not_well(lab, ended)
    assert not broken, "\n".join([*broken, ended.said])


def test_everything_listens_on_loopback_only(lab):
    process = lab.start(lab.command(FAULTS, "wait"))
    lab.wait_until_reached(process)
    time.sleep(1.5)  # for the watch to look at the ports
    process.terminate()
    ended = lab.end(process, 60)
    broken = nothing_left(lab, ended)
    assert not broken, "\n".join([*broken, ended.said])
    assert lab.watch.listened, "nothing was seen to listen"
    open_to_others = {
        (address, port) for address, port in lab.watch.listened if not address.startswith(("127.", "::1"))
    }
    assert not open_to_others


@pytest.mark.parametrize("how", ["own-names", "bent"])
def test_a_host_name_that_does_not_resolve_does_not_matter(how, lab):
    command = lab.command(FAULTS, "well")
    if how == "bent":
        bend(lab, "host:no-such-host.invalid")
    else:
        probe = ["unshare", "--uts", "hostname", "no-such-host.invalid"]
        if not shutil.which("unshare") or subprocess.run(probe, capture_output=True).returncode:
            pytest.skip("a host name of its own is not permitted here: this test needs root on Linux")
        command = ["unshare", "--uts", "sh", "-c", 'hostname no-such-host.invalid; exec "$@"', "sh", *command]
    ended = lab.end(lab.start(command))
    broken = not_well(lab, ended)
    assert not broken, "\n".join([*broken, ended.said])


HOLD = """
import os, sys
from fsdp2_lab import cli
import fsdp2_lab.lab.launcher, fsdp2_lab.lab.live.progress, fsdp2_lab.lab.runs, glob, shutil, tempfile
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
for descriptor in held[:int(sys.argv[1])]:
    os.close(descriptor)
sys.exit(cli.main(sys.argv[2:]))
"""


@pytest.mark.parametrize("free", [0, 3, 8])
def test_no_free_descriptors_is_said_in_one_sentence(free, lab):
    command = lab.command(FOREIGN, "exception")[3:]
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))  # noqa: E731
    process = lab.start([sys.executable, "-c", HOLD, str(free), *command], preexec_fn=limit)
    ended = lab.end(process, 60)
    broken = nothing_left(lab, ended)
    assert not broken, "\n".join([*broken, ended.said])
    assert ended.code != 0, ended.said
    if "rank 1 of 2 failed first" not in ended.stderr:  # enough was free after all
        assert "Traceback" not in ended.stderr, ended.said
        assert "open files" in ended.stderr or "descriptor" in ended.stderr, ended.said


def test_a_clock_that_steps_back_changes_no_duration(lab):
    bend(lab, f"clock:{time.time() + 5}")
    ended = lab.run(FAULTS, "well")
    broken = not_well(lab, ended)
    assert not broken, "\n".join([*broken, ended.said])
    assert 0 < ended.told["seconds"] < 120
    assert all(stage.seconds >= 0 for rank in (0, 1) for stage in ended.record(rank).stages)


def test_a_slow_disk_only_takes_longer(lab):
    bend(lab, "disk:0.5")
    ended = lab.run(FAULTS, "well")
    broken = not_well(lab, ended)
    assert not broken, "\n".join([*broken, ended.said])


def test_a_slow_disk_does_not_delay_the_deadline(lab):
    bend(lab, "disk:0.5")
    ended = lab.run(FAULTS, "wait", timeout=15)
    seconds = ended.ended - ended.began
    lab.measures |= {"kind": "hang", "seconds_to_report": max(0.0, seconds - 15)}
    broken = nothing_left(lab, ended) + nothing_lost(lab, ended, "work")
    assert not broken, "\n".join([*broken, ended.said])
    assert ended.code in (1, 124) and seconds < 15 + 10, ended.said


def test_a_folder_that_cannot_be_written_is_said_before_any_rank_starts(lab, mounted):
    (lab.home / "runs").mkdir()
    mounted(lab.home / "runs", "ro")
    ended = lab.run(FOREIGN, "well")
    broken = nothing_left(lab, ended)
    assert not broken, "\n".join([*broken, ended.said])
    assert ended.code == 2 and ended.one_sentence and not ended.reached, ended.said
    assert "Read-only" in ended.stderr and "runs" in ended.stderr, ended.said


def test_a_full_disk_is_said_before_any_rank_starts(lab, mounted):
    (lab.home / "runs").mkdir()
    mounted(lab.home / "runs", "size=200k")
    with suppress(OSError):
        (lab.home / "runs" / "filler").write_bytes(b"x" * 300_000)
    ended = lab.run(FOREIGN, "well")
    broken = nothing_left(lab, ended)
    assert not broken, "\n".join([*broken, ended.said])
    assert ended.code == 2 and ended.one_sentence and not ended.reached, ended.said
    assert "No space left" in ended.stderr, ended.said


def test_a_disk_that_fills_up_while_ranks_print_is_named(lab, mounted):
    (lab.home / "runs").mkdir()
    mounted(lab.home / "runs", "size=200k")
    ended = lab.run(FAULTS, "no-space")
    lab.measures["seconds_to_report"] = ended.seconds_to_report
    broken = nothing_left(lab, ended)
    assert not broken, "\n".join([*broken, ended.said])
    assert ended.code == 1 and "No space left" in ended.stderr, ended.said
    assert "fsdp2_lab/lab/" not in ended.stderr, ended.said
    assert ended.seconds_to_report < 10
