"""A file is the old one or the new one, never a part, and a failing write leaves nothing behind."""

import json
import os
import stat
import threading

import pytest

from fsdp2_lab.contract import workspace
from fsdp2_lab.contract.errors import UsageError


def test_a_write_makes_the_folders_it_needs(tmp_path):
    workspace.write_text(tmp_path / "a" / "b" / "file.txt", "text")
    assert (tmp_path / "a" / "b" / "file.txt").read_text() == "text"


def test_a_failing_write_leaves_the_old_file_and_no_temporary_one(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        workspace.write_text(path, "new " * 100_000 + "\ud800")  # half a surrogate pair is no UTF-8
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_value_that_is_no_json_leaves_the_old_file(tmp_path):
    path = tmp_path / "file.json"
    workspace.write_json(path, {"old": 1})
    with pytest.raises(ValueError):
        workspace.write_json(path, {"new": float("nan")})
    assert json.loads(path.read_text()) == {"old": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_in_the_files_place_is_named_in_the_error(tmp_path, is_one_sentence):
    (tmp_path / "file.txt").mkdir()
    with pytest.raises(UsageError, match=r"Cannot write .*file\.txt") as caught:
        workspace.write_text(tmp_path / "file.txt", "text")
    assert is_one_sentence(str(caught.value))
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt"]


def test_a_file_in_the_folders_place_is_named_in_the_error(tmp_path, is_one_sentence):
    # What an unwritable folder gives; not made with mode bits, which root ignores.
    (tmp_path / "runs").write_text("a file")
    path = tmp_path / "runs" / "one" / "rank0.json"
    with pytest.raises(UsageError) as caught:
        workspace.write_json(path, {})
    assert str(path) in str(caught.value)
    assert is_one_sentence(str(caught.value))


def test_a_written_file_has_the_mode_that_the_umask_asks_for(tmp_path):
    before = os.umask(0o027)
    try:
        workspace.write_text(tmp_path / "file.txt", "text")
        assert stat.S_IMODE((tmp_path / "file.txt").stat().st_mode) == 0o640
    finally:
        os.umask(before)


def test_a_reader_never_sees_a_part_of_a_file(tmp_path):
    path, seen, done = tmp_path / "file.txt", set(), threading.Event()
    workspace.write_text(path, "a" * 2_000_000)

    def read():
        while not done.is_set():
            text = path.read_text()
            seen.add((len(text), *sorted(set(text))))

    reader = threading.Thread(target=read)
    reader.start()
    for letter in "bababababa":
        workspace.write_text(path, letter * 2_000_000)
    done.set()
    reader.join()
    assert seen <= {(2_000_000, "a"), (2_000_000, "b")}
