"""Old runs are listed and reopened, and one bad folder does not hide the others."""

import pytest

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.record import write_launch, write_record
from fsdp2_lab.lab.runs import Run, runs


@pytest.fixture
def three_runs(home, rank_record, launch_record):
    """Runs started at 1000, 3000 and 2000 s; the last by plain torchrun."""
    folder = home / "runs"
    write_launch(folder / "old-1", launch_record("old-1"))
    write_launch(folder / "new-1", launch_record("new-1", started_unix_seconds=3000.0, status="failed"))
    write_record(folder / "hand-1", rank_record(0, started_unix_seconds=2000.0))
    return folder


def test_there_are_no_runs_in_an_empty_project(home):
    assert runs().empty
    assert list(runs().columns) == ["id", "status", "ranks", "seconds", "how", "command"]


def test_runs_are_listed_newest_first(three_runs):
    listed = runs()
    assert list(listed["id"]) == ["new-1", "hand-1", "old-1"]
    assert list(listed["status"]) == ["failed", "ok", "ok"]
    assert list(listed["ranks"]) == [2, 2, 2]


def test_a_run_that_cannot_be_read_is_listed_as_such(three_runs):
    (three_runs / "broken-1").mkdir()
    (three_runs / "broken-1" / "rank0.json").write_text('{"schema": 1, ')
    listed = runs().set_index("id")
    assert listed.loc["broken-1", "status"] == "unreadable"
    assert "not a whole record" in listed.loc["broken-1", "command"]
    assert set(listed.index) == {"new-1", "hand-1", "old-1", "broken-1"}


def test_folders_without_records_are_no_runs(three_runs):
    (three_runs / "notebooks").mkdir()
    (three_runs / "notebooks" / "00_start.ipynb").write_text("{}")
    (three_runs / "a_file.txt").touch()
    assert "notebooks" not in set(runs()["id"]) and len(runs()) == 3


def test_somebody_elses_json_does_not_break_the_list(three_runs):
    (three_runs / "other").mkdir()
    (three_runs / "other" / "results.json").write_text("{}")
    assert {"new-1", "hand-1", "old-1"} <= set(runs()["id"])


def test_a_run_is_opened_again_by_its_id(three_runs):
    assert Run.open("new-1").status == "failed"
    assert Run.open("hand-1").losses == [6.0, 5.0, 4.0, 3.0]


def test_an_id_that_no_run_has_is_told_in_one_sentence(three_runs, is_one_sentence):
    with pytest.raises(UsageError, match="No run 'train-9'") as caught:
        Run.open("train-9")
    assert is_one_sentence(str(caught.value))
