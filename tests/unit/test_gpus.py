"""GPUs are taken by name or by free memory, under locks that real processes hold; `nvidia-smi` is a stand-in."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fsdp2_lab
from fsdp2_lab.cli import main
from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.lab import launcher
from fsdp2_lab.lab.gpus import choice as gpus
from fsdp2_lab.lab.gpus import locks as gpu_locks
from fsdp2_lab.lab.gpus import nvidia_smi
from fsdp2_lab.lab.live.progress import Progress
from fsdp2_lab.lab.machine import Machine

FOUR = Machine(gpus=4, cores=8)
OTHER = """
import sys, time
from pathlib import Path
from fsdp2_lab.lab.gpus import locks as gpu_locks
from fsdp2_lab.lab.gpus import choice as gpus
from fsdp2_lab.lab.machine import Machine
gpu_locks.FOLDER = Path(sys.argv[1])
with gpus.taken(Machine(4, 8), len(sys.argv[3]), [int(digit) for digit in sys.argv[3]], run_id=sys.argv[2]):
    print("holding", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def locks(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(gpu_locks, "FOLDER", tmp_path / "locks")
    return tmp_path / "locks"


@pytest.fixture
def smi(tmp_path, monkeypatch, locks):
    """Puts an `nvidia-smi` first on PATH that shows four GPUs of 100 MiB: used MiB by number, and who computes."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def show(used=(0, 0, 0, 0), apps=""):
        lines = "\n".join(f"{number}, GPU-{number}{number}-x, {mib}, 100" for number, mib in enumerate(used))
        script = f"#!/bin/sh\ncase $1 in\n*gpu_uuid*) cat <<'E'\n{apps}\nE\n;;\n*) cat <<'E'\n{lines}\nE\nesac\n"
        (folder / "nvidia-smi").write_text(script)
        (folder / "nvidia-smi").chmod(0o755)

    show()
    return show


@pytest.fixture
def another(smi, locks):
    """Starts another process that holds the GPUs with the given digits as numbers, and waits until it does."""
    started = []

    def start(digits: str, run_id: str = "train-other") -> subprocess.Popen:
        environment = os.environ | {"PYTHONPATH": str(Path(fsdp2_lab.__file__).parents[1])}
        command = [sys.executable, "-c", OTHER, str(locks), run_id, digits]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        started.append(process)
        assert process.stdout.readline() == "holding\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def visible(machine=FOUR, ranks=1, *args, **kwargs) -> str:
    with gpus.taken(machine, ranks, *args, **kwargs) as environment:
        return environment["CUDA_VISIBLE_DEVICES"]


def test_without_gpus_nothing_is_added_and_naming_some_is_refused(locks, is_one_sentence):
    with gpus.taken(Machine(gpus=0, cores=2), 2) as environment:
        assert environment == {}
    with pytest.raises(UsageError, match="has no GPU") as caught, gpus.taken(Machine(gpus=0, cores=2), 1, [0]):
        pass
    assert is_one_sentence(str(caught.value)) and not locks.exists()


def test_the_freest_gpus_are_taken_and_ranks_count_them_as_nvidia_smi_does(smi):
    smi(used=(9, 0, 5, 0))
    with gpus.taken(FOUR, 2) as environment:
        assert environment == {"CUDA_VISIBLE_DEVICES": "1,3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert visible(FOUR, 3) == "1,2,3"


def test_named_gpus_are_taken_in_the_order_named_even_when_busy(smi):
    smi(used=(0, 0, 90, 0))
    assert visible(FOUR, 2, [2, 0]) == "2,0"


def test_the_choice_stays_among_the_callers_own_devices(smi, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    two = Machine(gpus=2, cores=8)
    assert visible(two, 2) == "1,3"
    assert visible(two, 1, [3]) == "3"
    with pytest.raises(UsageError, match=r"out of 1, 3\."):
        visible(two, 1, [0])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-22,GPU-00-x")
    assert visible(two, 1, [2]) == "GPU-22"


def test_where_nvidia_smi_and_torch_count_otherwise_devices_keep_their_names(smi, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-aa/1,MIG-bb")
    with gpus.taken(Machine(gpus=2, cores=8), 2) as environment:
        assert environment == {"CUDA_VISIBLE_DEVICES": "MIG-aa/1,MIG-bb"}


@pytest.mark.parametrize("script", [None, "exit 9", "echo 'No devices were found'", "echo '0, GPU-0, [N/A], [N/A]'"])
def test_without_an_answer_memory_is_unknown_and_locks_still_hold(script, smi, tmp_path, locks):
    fake = tmp_path / "bin" / "nvidia-smi"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    if script is None:
        fake.unlink()
    one = Machine(gpus=1, cores=8)
    with gpus.taken(one, 1) as environment:
        assert environment["CUDA_VISIBLE_DEVICES"] == "0"
        with pytest.raises(UsageError, match=f"GPU 0 held by .*pid {os.getpid()}"):
            visible(one)


@pytest.mark.parametrize("named", [[], [0, 0], [4], [-1], ["0"], [True], 0, "0", [0.0]])
def test_gpus_that_are_no_numbers_of_gpus_are_refused(named, smi, is_one_sentence):
    with pytest.raises(UsageError, match="out of 0, 1, 2, 3") as caught:
        visible(FOUR, 1, named)
    assert is_one_sentence(str(caught.value))


def test_named_gpus_are_as_many_as_ranks(smi):
    with pytest.raises(UsageError, match="2 ranks, one GPU each; name 2 GPUs"):
        visible(FOUR, 2, [0])


@pytest.mark.parametrize("wait", [-1, float("nan"), float("inf"), "9", True])
def test_a_wait_that_is_no_time_is_refused(wait, smi, is_one_sentence):
    with pytest.raises(UsageError, match="number of seconds") as caught:
        visible(FOUR, 1, wait=wait)
    assert is_one_sentence(str(caught.value))


def test_named_gpus_say_how_many_ranks():
    assert gpus.rank_count(FOUR, None, [0, 2]) == 2
    assert gpus.rank_count(FOUR, None, None) == 4
    assert gpus.rank_count(FOUR, 1, None) == 1
    with pytest.raises(UsageError, match="has 4 GPUs"):
        gpus.rank_count(FOUR, 5, None)


def test_a_launch_that_gets_no_gpus_leaves_no_run_behind(another, home, tmp_path, monkeypatch):
    script = tmp_path / "own.py"
    script.write_text("print('never')")
    other = another("0123")
    monkeypatch.setattr(launcher, "machine", lambda: FOUR)
    with pytest.raises(UsageError, match=f"pid {other.pid}"):
        launcher.execute(script, 2, [], 60.0, Progress())
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "asked"), [([], (None, 0)), (["--gpus", "2,0", "--wait", "5"], ([2, 0], 5.0))], ids=["none", "both"]
)
def test_the_command_line_hands_on_which_gpus_and_how_long_to_wait(options, asked, home, tmp_path, monkeypatch):
    seen = []

    def refuse(machine, ranks, gpus, wait, run_id):
        seen.append((gpus, wait))
        raise UsageError("enough seen.")

    monkeypatch.setattr(launcher, "machine", lambda: FOUR)
    monkeypatch.setattr(launcher, "taken", refuse)
    (tmp_path / "own.py").touch()
    assert main(["run", str(tmp_path / "own.py"), *options]) == 2
    assert seen == [asked]


def test_the_command_line_names_gpus_with_commas(is_one_sentence):
    assert gpus.parse_gpus("0,2") == [0, 2]
    for text in ("", "0,", "a", "0 2", "-1", "0;2", "٣"):
        with pytest.raises(UsageError, match="--gpus") as caught:
            gpus.parse_gpus(text)
        assert is_one_sentence(str(caught.value))


def test_another_process_is_passed_by_and_named_when_too_few_are_left(another, is_one_sentence):
    other = another("01", "train-20260101-120000-ab12")
    assert visible(FOUR, 2) == "2,3"
    for ask in ({"ranks": 3}, {"ranks": 1, "gpus": [1]}):
        with pytest.raises(UsageError, match=rf"pid {other.pid}, run train-20260101-120000-ab12") as caught:
            visible(FOUR, **ask)
        assert is_one_sentence(str(caught.value))


def test_a_refused_launch_leaves_no_lock_behind(another):
    another("0")
    with pytest.raises(UsageError):
        visible(FOUR, 4)
    assert visible(FOUR, 3) == "1,2,3"


def test_a_killed_holder_leaves_its_gpus_at_once(another):
    other = another("0123")
    with pytest.raises(UsageError, match="GPUs 0, 1, 2, 3 held by"):
        visible(FOUR, 1)
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert visible(FOUR, 4) == "0,1,2,3"


def test_a_launch_that_waits_says_for_whom_and_goes_on_when_they_leave(another, capsys, monkeypatch):
    monkeypatch.setattr(gpus, "_POLL_SECONDS", 0.05)
    other, began = another("0123"), time.monotonic()
    ended = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {other.pid}"])
    assert visible(FOUR, 4, wait=30) == "0,1,2,3"
    ended.wait()
    assert 0.3 < time.monotonic() - began < 15
    assert f"pid {other.pid}" in capsys.readouterr().err


def test_waiting_ends_in_time_and_by_an_interrupt(another, monkeypatch):
    another("0123")
    began = time.monotonic()
    with pytest.raises(UsageError, match="Too few GPUs"):
        visible(FOUR, 1, wait=0.5)
    assert time.monotonic() - began < 5

    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(gpus.time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        visible(FOUR, 1, wait=60)


def test_an_interrupt_while_holding_gives_the_gpus_back(smi):
    with pytest.raises(KeyboardInterrupt), gpus.taken(FOUR, 4):
        raise KeyboardInterrupt
    assert visible(FOUR, 4) == "0,1,2,3"


def test_a_gpu_that_somebody_outside_uses_is_passed_by_and_named(smi, is_one_sentence):
    smi(used=(0, 80, 0, 50), apps=f"GPU-11-x, {os.getpid()}")
    assert visible(FOUR, 2) == "0,2"
    with pytest.raises(UsageError, match=rf"GPU 1 busy \(80\.00 MiB used by .*pid {os.getpid()}\)") as caught:
        visible(FOUR, 3)
    assert "GPU 3 busy (50.00 MiB used by a process that is not visible here)" in str(caught.value)
    assert is_one_sentence(str(caught.value))


def test_nvidia_smi_that_does_not_answer_is_as_none(smi, tmp_path, monkeypatch):
    monkeypatch.setattr(nvidia_smi, "_TIMEOUT_SECONDS", 0.2)
    (tmp_path / "bin" / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 20\n")
    assert nvidia_smi.list_gpus() == []
