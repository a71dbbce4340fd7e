"""A launch that cannot go well is refused before any rank starts, and leaves no folder behind."""

import math

import pytest

from fsdp2_lab import checkpoint, launch
from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.lab.launcher import execute
from fsdp2_lab.lab.live.progress import Progress

OURS = "from fsdp2_lab.rank import read_settings\nsettings = read_settings()\n"


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "ours.py"
    path.write_text(OURS)
    return path


def test_a_bad_setting_is_refused(script, home):
    with pytest.raises(UsageError, match="--batch 0"):
        execute(script, 2, ["--batch", "0"], 60.0, Progress())
    assert list(home.iterdir()) == []


def test_a_missing_script_is_refused(home, tmp_path, is_one_sentence):
    with pytest.raises(UsageError, match=r"No script .*none\.py") as caught:
        execute(tmp_path / "none.py", 2, [], 60.0, Progress())
    assert is_one_sentence(str(caught.value))
    assert list(home.iterdir()) == []


def test_a_folder_is_no_script(home, tmp_path):
    with pytest.raises(UsageError, match="No script"):
        execute(tmp_path, 2, [], 60.0, Progress())


@pytest.mark.parametrize("timeout", [0, -1, math.nan, math.inf])
def test_a_timeout_that_is_no_time_is_refused(timeout, script, home, is_one_sentence):
    with pytest.raises(UsageError, match="timeout") as caught:
        execute(script, 2, [], timeout, Progress())
    assert is_one_sentence(str(caught.value))
    assert list(home.iterdir()) == []


def test_an_unwritable_runs_folder_is_named(script, home, is_one_sentence):
    (home / "runs").write_text("a file where a folder should be")
    with pytest.raises(UsageError) as caught:
        execute(script, 2, [], 60.0, Progress())
    assert str(home / "runs") in str(caught.value)
    assert is_one_sentence(str(caught.value))


def test_a_stage_that_is_not_written_is_answered_with_those_that_are(home, is_one_sentence):
    (home / "launch").mkdir()
    (home / "launch" / "mesh.py").touch()
    with pytest.raises(UsageError, match=r"No stage 'shard'.*Stages: mesh\.") as caught:
        launch("shard", ranks=2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["../mesh", "mesh.py", "launch/mesh.py"])
def test_a_stage_is_launched_by_its_name_and_not_by_a_path(name, home):
    with pytest.raises(UsageError, match="cannot name a stage"):
        launch(name, ranks=2)


def test_an_unknown_keyword_is_refused(home):
    (home / "launch").mkdir()
    (home / "launch" / "ours.py").write_text(OURS)
    with pytest.raises(UsageError, match="--layers"):
        launch("ours", ranks=2, layers=3)
    assert not (home / "runs").exists()


def test_a_checkpoint_is_made_of_built_in_models_only(home, is_one_sentence):
    with pytest.raises(UsageError, match="byte-llama-tied") as caught:
        checkpoint("llama-7b")
    assert is_one_sentence(str(caught.value))
