"""However a launch ends, it says how, keeps the logs, and leaves no process behind."""

import json
import signal
import subprocess
import time

import pytest

from fsdp2_lab import StageFailed, launch
from fsdp2_lab.contract.record import read_launch

KEYS = {
    *("status", "how", "ranks", "run_dir", "command", "stages", "steps", "step0_peak_bytes", "peak_bytes", "error"),
    *("id", "seconds", "exit_codes", "rss_peak_bytes", "step_seconds", "explanation", "consequences"),
}


@pytest.fixture(scope="module")
def foreign(project, scripts, tmp_path_factory):
    """Runs the script that imports nothing of ours, once for each thing that can happen to it.

    What stands after `--` is the script's, also a word that the command knows.
    """
    ended = {}

    def run(what: str, timeout: float = 60):
        if what not in ended:
            folder = tmp_path_factory.mktemp("ready")
            ended[what] = project.run(scripts / "foreign.py", "--", what, folder, "--own=1", "--json", timeout=timeout)
        return ended[what]

    return run


@pytest.fixture(scope="module")
def recording(project, scripts):
    """A script with our two lines, in which rank 1 raises."""
    return project.run(scripts / "recording.py", "raise", timeout=60)


ENDS = {"well": (0, "ok"), "raise": (1, "failed"), "exit": (1, "failed"), "kill": (1, "failed")}


@pytest.mark.parametrize("what", ENDS)
def test_stdout_is_one_json_object_with_the_promised_keys(what, foreign):
    told = foreign(what).told
    assert set(told) == KEYS
    assert (foreign(what).code, told["status"]) == ENDS[what]
    assert (told["stages"], told["steps"], told["how"], told["ranks"]) == ([], [], "measured (CPU)", 2)


@pytest.mark.parametrize("what", ENDS)
def test_no_process_is_left(what, foreign, processes_of):
    assert processes_of(foreign(what).run.dir) == []


@pytest.mark.parametrize("what", ENDS)
def test_each_rank_has_a_log_of_its_own(what, foreign):
    logs = foreign(what).run.dir / "logs"
    for rank in (0, 1):
        assert (logs / f"rank{rank}.stdout").read_text().startswith(f"hello from rank {rank} --own=1 --json\n")
        assert f"a word on stderr from rank {rank}" in (logs / f"rank{rank}.stderr").read_text()


def test_exit_codes_are_by_rank(foreign):
    codes = {what: foreign(what).told["exit_codes"] for what in ENDS}
    assert codes["well"] == {"0": 0, "1": 0}
    # Rank 0 waited, and was ended because rank 1 failed.
    assert codes["raise"] == {"0": None, "1": 1}
    assert codes["exit"] == {"0": None, "1": 3}
    assert codes["kill"] == {"0": None, "1": -9}


def test_resident_memory_is_seen_from_outside(foreign):
    for what in ENDS:
        peaks = foreign(what).told["rss_peak_bytes"]
        assert set(peaks) == {"0", "1"} and min(peaks.values()) > 2**20


def test_the_command_can_be_typed_again(foreign):
    command = foreign("well").told["command"]
    assert command.startswith("torchrun --standalone --nproc_per_node=2 ")
    assert "foreign.py well " in command and command.endswith(" --own=1 --json")


def test_an_exception_is_read_from_its_ranks_log(foreign):
    error = foreign("raise").told["error"]
    assert (error["rank"], error["type"]) == (1, "ValueError")
    assert error["message"] == "invalid literal for int() with base 10: 'one and a half'"
    assert error["traceback"].startswith("Traceback (most recent call last):\n")
    assert "return int(value)" in error["traceback"]


def test_a_bare_exit_is_told_with_its_code(foreign):
    error = foreign("exit").told["error"]
    assert (error["rank"], error["message"]) == (1, "rank 1 ended with exit code 3")


def test_a_killed_rank_is_told_with_its_signal(foreign):
    error = foreign("kill").told["error"]
    assert (error["rank"], error["type"]) == (1, "SIGKILL")


def test_a_run_that_went_well_has_no_error(foreign):
    assert foreign("well").told["error"] is None


def test_the_failing_rank_is_told_with_its_stage_and_the_others_as_far_as_they_came(recording, processes_of):
    told = recording.told
    assert (recording.code, told["status"], set(told)) == (1, "failed", KEYS)
    assert (told["error"]["rank"], told["error"]["type"], told["error"]["message"]) == (
        1,
        "ValueError",
        "boom on rank 1",
    )
    assert told["error"]["stage"] == "work"
    assert [stage["name"] for stage in told["stages"]] == ["join", "work"]
    assert [rank["rank"] for rank in told["stages"][0]["ranks"]] == [0, 1]
    assert processes_of(recording.run.dir) == []


def test_an_exception_ends_a_recording_rank_with_exit_code_1(recording):
    # And not with a signal, as a profiler that is still running would.
    assert recording.told["exit_codes"]["1"] == 1


def test_a_failure_is_said_on_stderr_with_its_own_traceback_first(recording):
    said = recording.stderr
    parts = ["rank 1 of 2 failed first, in stage work", "Traceback", "ValueError: boom on rank 1", "logs:", "again:"]
    places = [said.index(part) for part in parts]
    assert places == sorted(places)
    assert said.count("Traceback") == 1  # torchrun's own and the other rank's are in the logs


def test_a_rank_that_leaves_with_an_exit_code_is_not_recorded_as_ok(project, scripts):
    ended = project.run(scripts / "recording.py", "exit", timeout=60)
    assert (ended.code, ended.told["exit_codes"]["1"]) == (1, 3)
    assert (ended.told["error"]["rank"], ended.told["error"]["message"]) == (1, "rank 1 ended with exit code 3")
    assert ended.run.records[1].status == "failed"


def test_a_failed_launch_raises_in_the_cell(home, scripts, monkeypatch, capsys, processes_of):
    (home / "launch").mkdir()
    (home / "launch" / "broken.py").write_text("import os\nif os.environ['RANK'] == '1':\n    raise KeyError('boom')\n")
    with pytest.raises(StageFailed) as caught:
        launch("broken", ranks=2, timeout=60)
    said = str(caught.value)
    places = [said.index(part) for part in ("Traceback", "KeyError: 'boom'", "logs:", "again:")]
    assert places == sorted(places)
    assert (caught.value.run.status, caught.value.run.error.rank) == ("failed", 1)
    assert processes_of(caught.value.run.dir) == []


def test_a_deadline_ends_ranks_that_do_not_listen(foreign, processes_of):
    began = time.monotonic()
    ended = foreign("deaf", timeout=5)
    assert time.monotonic() - began < 20
    assert (ended.code, ended.told["status"], ended.told["error"]) == (124, "timeout", None)
    assert "No end after 5 s" in ended.stderr
    assert processes_of(ended.run.dir) == []


def _started(project, scripts, folder, what: str) -> subprocess.Popen:
    """A launch whose two ranks have come as far as their wait."""
    process = project.start("-m", "fsdp2_lab", "run", scripts / "foreign.py", "--ranks", 2, "--json", what, folder)
    deadline = time.monotonic() + 60
    while len(list(folder.iterdir())) < 2:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    return process


def test_ctrl_c_ends_every_rank(project, scripts, tmp_path, processes_of):
    process = _started(project, scripts, tmp_path, "wait")
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    told = json.loads(stdout)
    assert (process.returncode, told["status"], set(told)) == (130, "interrupted", KEYS)
    run_dir = project.folder / "runs" / told["id"]
    assert read_launch(run_dir).status == "interrupted"
    assert "Traceback" not in stderr
    assert processes_of(run_dir) == []


def test_ctrl_c_twice_ends_every_rank_too(project, scripts, tmp_path, processes_of):
    # The second press comes while ranks that do not listen are being ended.
    before = set(project.runs)
    process = _started(project, scripts, tmp_path, "deaf")
    (run_dir,) = set(project.runs) - before
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    left = processes_of(run_dir)
    for each in left:
        each.kill()  # by this test, so that a failure leaves nothing either
    assert left == []
    assert process.returncode == 130
    assert read_launch(run_dir).status == "interrupted"
