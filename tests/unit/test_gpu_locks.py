"""A lock file lies where everybody can write: what lies in its place is checked, what it says is not trusted."""

import os
import re
import stat
import tempfile
from pathlib import Path

import pytest

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.lab.gpus import locks as gpu_locks


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_locks, "FOLDER", tmp_path / "locks")
    return tmp_path / "locks"


@pytest.fixture
def as_another_user(monkeypatch):
    """Makes this process act as another user for a while, with a folder that both can reach; only root can."""
    if os.geteuid() != 0:
        pytest.skip("acting as another user needs root")
    with tempfile.TemporaryDirectory() as shared:
        os.chmod(shared, 0o755)
        monkeypatch.setattr(gpu_locks, "FOLDER", Path(shared) / "locks")
        yield os.seteuid
        os.seteuid(0)


def mode(path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_folder_and_file_are_for_everybody_whatever_the_umask(umask, folder):
    before = os.umask(umask)
    try:
        with gpu_locks.locked("GPU-0", "train-1"):
            assert (mode(folder), mode(folder / "GPU-0.lock")) == (0o1777, 0o666)
    finally:
        os.umask(before)


def test_one_user_sees_that_another_holds_a_gpu_and_takes_it_after_them(as_another_user):
    with gpu_locks.locked("GPU-0", "train-1"):
        as_another_user(65534)
        with pytest.raises(gpu_locks.Held, match=r"root .*run train-1"), gpu_locks.locked("GPU-0", "train-2"):
            pass
        as_another_user(0)
    as_another_user(65534)
    with gpu_locks.locked("GPU-0", "train-2"):
        pass


def test_a_lock_that_its_owner_keeps_from_others_is_theirs(as_another_user):
    with gpu_locks.locked("GPU-0", "train-1"):
        pass
    path = gpu_locks.FOLDER / "GPU-0.lock"
    path.chmod(0o600)
    as_another_user(65534)
    with pytest.raises(gpu_locks.Held, match=r"root, whose lock .*GPU-0\.lock"), gpu_locks.locked("GPU-0", "train-2"):
        pass


def test_a_free_lock_says_nothing_of_who_had_it(folder):
    with gpu_locks.locked("GPU-0", "train-1"):
        assert b"train-1" in (folder / "GPU-0.lock").read_bytes()
    assert (folder / "GPU-0.lock").read_bytes() == b""


def test_a_child_forked_meanwhile_does_not_keep_the_lock(folder):
    with gpu_locks.locked("GPU-0", "train-1"):
        read, write = os.pipe()
        if not (child := os.fork()):
            os.close(write)
            os.read(read, 1)
            os._exit(0)
    try:
        with gpu_locks.locked("GPU-0", "train-2"):
            pass
    finally:
        os.close(write)
        os.close(read)
        os.waitpid(child, 0)


SAID = {
    "nothing": b"",
    "no JSON": b"\xff{",
    "a number": b"3",
    "deep": b"[" * 4000,
    "wrong types": b'{"user": 1, "pid": "x", "run_id": [], "since_unix_seconds": null}',
    "endless": b'{"user": "' + b"a" * 100_000,
    "a huge pid": b'{"user": "a", "pid": 1' + b"0" * 400 + b', "run_id": "", "since_unix_seconds": 0}',
    "a huge time": b'{"user": "a", "pid": 1, "run_id": "", "since_unix_seconds": 1e999}',
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_a_holder_without_a_proper_name_is_somebody(said, folder):
    with gpu_locks.locked("GPU-0", "train-1"):
        (folder / "GPU-0.lock").write_bytes(said)
        with pytest.raises(gpu_locks.Held) as caught, gpu_locks.locked("GPU-0", "train-2"):
            pass
    assert str(caught.value) == "somebody"


def test_a_holders_words_cannot_reach_the_terminal_as_more_than_words(folder):
    said = '{"user": "a\\u001b[2J\\n<b>", "pid": 7, "run_id": "../x y", "since_unix_seconds": 1}'
    with gpu_locks.locked("GPU-0", "train-1"):
        (folder / "GPU-0.lock").write_text(said)
        with pytest.raises(gpu_locks.Held) as caught, gpu_locks.locked("GPU-0", "train-2"):
            pass
    assert re.fullmatch(r"a2Jb \(pid 7, run \.\.xy, for \d+ min\)", str(caught.value))


@pytest.mark.parametrize("kind", ["symlink", "dangling symlink", "fifo", "folder", "hard link"])
def test_what_is_no_plain_file_is_refused_and_left_alone(kind, folder, tmp_path, is_one_sentence):
    with gpu_locks.locked("GPU-1", "train-1"):
        pass
    path, own = folder / "GPU-0.lock", tmp_path / "own.txt"
    if kind != "dangling symlink":
        own.write_text("mine")
    {
        "symlink": lambda: path.symlink_to(own),
        "dangling symlink": lambda: path.symlink_to(own),
        "fifo": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "hard link": lambda: os.link(own, path),
    }[kind]()
    with pytest.raises(UsageError, match=r"GPU-0\.lock") as caught, gpu_locks.locked("GPU-0", "train-2"):
        pass
    assert is_one_sentence(str(caught.value))
    assert own.exists() == (kind != "dangling symlink") and (kind == "dangling symlink" or own.read_text() == "mine")


def test_a_folder_that_is_none_is_refused(folder, tmp_path, is_one_sentence):
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="folder of GPU locks") as caught, gpu_locks.locked("GPU-0", "train-1"):
        pass
    assert is_one_sentence(str(caught.value)) and list((tmp_path / "elsewhere").iterdir()) == []
