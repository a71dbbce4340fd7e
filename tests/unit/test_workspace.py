"""The project folder is found from where a person stands."""

import os
import stat
from pathlib import Path

import pytest

from fsdp2_lab.contract import workspace
from fsdp2_lab.contract.errors import UsageError


@pytest.fixture
def standing_in(monkeypatch):
    def stand(folder):
        folder.mkdir(parents=True, exist_ok=True)
        monkeypatch.delenv("FSDP2_LAB_HOME", raising=False)
        monkeypatch.chdir(folder)

    return stand


def test_the_root_is_the_nearest_folder_upward_with_launch_in_it(tmp_path, standing_in):
    (tmp_path / "launch").mkdir()
    (tmp_path / "inner" / "launch").mkdir(parents=True)
    standing_in(tmp_path / "inner" / "deep" / "deeper")
    assert workspace.root() == tmp_path / "inner"


@pytest.mark.parametrize("mark", ["pyproject.toml", ".git"])
def test_the_search_ends_at_the_edge_of_a_project(tmp_path, standing_in, mark):
    (tmp_path / "launch").mkdir()
    (tmp_path / "other" / "deep").mkdir(parents=True)
    (tmp_path / "other" / mark).touch()
    standing_in(tmp_path / "other" / "deep")
    assert workspace.root() == tmp_path / "other" / "deep"


def test_a_project_with_both_marks_and_launch_is_the_root(tmp_path, standing_in):
    (tmp_path / "launch").mkdir()
    (tmp_path / "pyproject.toml").touch()
    standing_in(tmp_path / "notebooks")
    assert workspace.root() == tmp_path


def test_a_file_named_launch_is_no_project(tmp_path, standing_in):
    (tmp_path / "launch").touch()
    (tmp_path / ".git").touch()
    standing_in(tmp_path / "deep")
    assert workspace.root() == tmp_path / "deep"


def test_the_variable_goes_before_the_search(tmp_path, standing_in, monkeypatch):
    (tmp_path / "launch").mkdir()
    standing_in(tmp_path)
    monkeypatch.setenv("FSDP2_LAB_HOME", str(tmp_path / "elsewhere"))
    assert workspace.runs_dir() == tmp_path / "elsewhere" / "runs"
    assert workspace.checkpoints_dir() == tmp_path / "elsewhere" / "checkpoints"
    assert workspace.launch_dir() == tmp_path / "elsewhere" / "launch"


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o755), (0o027, 0o750), (0o077, 0o700), (0o002, 0o775)])
def test_a_run_folder_has_the_mode_that_the_umask_asks_for(umask, mode, home):
    before = os.umask(umask)
    try:
        workspace.make_run_dir(home / "runs" / "train-1")
    finally:
        os.umask(before)
    for folder in (home / "runs", home / "runs" / "train-1"):
        assert stat.S_IMODE(folder.stat().st_mode) == mode


@pytest.mark.parametrize("kind", ["folder", "link", "dangling link"])
def test_a_run_never_goes_into_what_is_there_already(kind, home, tmp_path, is_one_sentence):
    run_dir, elsewhere = home / "runs" / "train-1", tmp_path / "elsewhere"
    run_dir.parent.mkdir()
    if kind == "folder":
        run_dir.mkdir()
    else:
        run_dir.symlink_to(elsewhere)
    if kind == "link":
        elsewhere.mkdir()
    with pytest.raises(UsageError, match="exists already") as caught:
        workspace.make_run_dir(run_dir)
    assert is_one_sentence(str(caught.value))


def test_a_runs_folder_of_another_user_is_named(home, monkeypatch, is_one_sentence):
    (home / "runs").mkdir()

    def refuse(self, *args, **kwargs):
        if self.name == "train-1":
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)  # root, as whom tests may run, is refused nothing
    monkeypatch.setattr(os, "geteuid", lambda: (home / "runs").stat().st_uid + 1)
    with pytest.raises(UsageError, match=r"runs belongs to another user.*FSDP2_LAB_HOME") as caught:
        workspace.make_run_dir(home / "runs" / "train-1")
    assert is_one_sentence(str(caught.value))
