"""The project folder is found from where a person stands."""

import pytest

from fsdp2_lab.contract import workspace


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
