"""Warm ranks: forked from a server that has imported already, and not to be told from cold ones but by time."""

import os
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest

from fsdp2_lab import StageInterrupted
from fsdp2_lab.contract import workspace
from fsdp2_lab.lab import warm
from fsdp2_lab.lab.launcher import execute
from fsdp2_lab.lab.live.progress import Progress

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ranks are forked on Linux only")

# What differs between any two launches, warm or not.
OF_A_LAUNCH = {
    *("FSDP2_LAB_RUN_DIR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "TORCH_FR_DUMP_TEMP_FILE"),
    *("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "PYTEST_CURRENT_TEST"),
}

OPEN = "from fsdp2_lab.rank import open_record\nrecord = open_record()\n"
SMALL = {
    "inherited": "import os, resource, tempfile\n"
    "record.note(umask=os.umask(0o22), files=resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    "record.note(cores=sorted(os.sched_getaffinity(0)), temporary=tempfile.gettempdir())\n",
    "unseeded": "import torch\nrecord.note(drawn=torch.rand(1).item())\n",
    "hides": "import yaml\nrecord.note(yaml=yaml.HERE)\n",
}


@pytest.fixture(scope="module")
def start(tmp_path_factory, checkout, scripts):
    """Launches a script of a project of its own, warm or cold; this process's server ends with the module."""
    home = tmp_path_factory.mktemp("warm") / "home"
    shutil.copytree(checkout / "launch", home / "launch")
    shutil.copy(scripts / "mirror.py", home / "launch")
    for name, source in SMALL.items():
        (home / "launch" / f"{name}.py").write_text(OPEN + source)

    def run(stage: str, *argv, how: str, ranks: int = 2):
        return execute(workspace.script_path(stage), ranks, list(argv), 90, Progress(), warm=how == "warm")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FSDP2_LAB_HOME", str(home))
        yield run
        warm.stop()


@pytest.fixture(scope="module")
def seen(start):
    """The run of the script that notes all it sees, for each way of starting it."""
    return {how: start("mirror", "look", how=how) for how in ("warm", "cold")}


@pytest.fixture(scope="module")
def trained(start):
    """Three steps of the workbook's program, for each way of starting it."""
    return {how: start("train", "--steps=3", how=how) for how in ("warm", "cold")}


def server_of(pid: int) -> list[psutil.Process]:
    children = psutil.Process(pid).children()
    return [child for child in children if "fsdp2_lab.agent.server" in " ".join(child.cmdline())]


def test_each_was_started_as_asked(seen):
    assert seen["warm"].launch.cold_because is None
    assert seen["cold"].launch.cold_because == "warm=False"


def test_a_script_cannot_tell_how_it_was_started(seen):
    for rank in (0, 1):
        told = {how: dict(run.records[rank].values) for how, run in seen.items()}
        for values in told.values():
            values["environment"] = {k: v for k, v in values["environment"].items() if k not in OF_A_LAUNCH}
        assert told["warm"] == told["cold"]


def test_the_agent_gives_its_ranks_the_same_names(seen):
    names = {how: set(run.records[0].values["environment"]) for how, run in seen.items()}
    assert names["warm"] == names["cold"]
    assert {"RANK", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"} <= names["warm"]


def test_output_goes_to_each_ranks_log(seen):
    for rank in (0, 1):
        assert "a line on stdout" in (seen["warm"].dir / "logs" / f"rank{rank}.stdout").read_text()
        assert "a line on stderr" in (seen["warm"].dir / "logs" / f"rank{rank}.stderr").read_text()


def test_losses_are_equal_to_the_bit_and_records_have_the_same_keys(trained):
    assert trained["warm"].losses == trained["cold"].losses and len(trained["warm"].losses) == 3
    shapes = {
        how: [
            (record.status, [row.name for row in record.stages], sorted(record.values), sorted(record.settings))
            for record in run.records
        ]
        for how, run in trained.items()
    }
    assert shapes["warm"] == shapes["cold"]
    told = {how: run.to_json() for how, run in trained.items()}
    assert set(told["warm"]) == set(told["cold"])


def test_memory_is_the_same(trained):
    warm_bytes, cold_bytes = (run.peak_bytes for run in (trained["warm"], trained["cold"]))
    assert abs(warm_bytes - cold_bytes) < 64 * 2**10


def test_a_failing_rank_is_told_as_in_a_cold_run(start):
    said = {how: start("mirror", "fail", how=how) for how in ("warm", "cold")}
    first = {how: run.failure().splitlines()[:5] for how, run in said.items()}
    assert first["warm"] == first["cold"]
    assert first["warm"][0] == "rank 1 of 2 failed first, in stage look."
    assert said["warm"].launch.exit_codes["1"] == 1


def test_launches_leave_nothing_in_the_server(start):
    (server,) = server_of(os.getpid())

    def held():
        return server.num_fds(), server.num_threads(), len(server.children(recursive=True))

    start("mirror", "look", how="warm")
    before = held()
    for _ in range(5):
        assert start("mirror", "look", how="warm").launch.cold_because is None
    assert held() == before == (before[0], 1, 0)


def test_a_changed_environment_and_a_dead_server_each_start_a_new_one(start, monkeypatch):
    (first,) = server_of(os.getpid())
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "error")  # read at import
    assert start("mirror", "look", how="warm").launch.cold_because is None
    (second,) = server_of(os.getpid())
    assert second != first and not first.is_running()
    second.kill()
    second.wait(5)
    run = start("mirror", "look", how="warm")
    assert (run.status, run.launch.cold_because) == ("ok", None)


def test_an_interrupt_finds_forked_ranks_though_they_are_the_servers_children(start, processes_of):
    class InterruptOnceRunning(Progress):
        def start(self, launch, run_dir):
            self.run_dir, self.found = run_dir, None

        def update(self):
            if (self.run_dir / "rank1.json").exists():
                self.found = {process.pid for process in processes_of(self.run_dir)}
                raise KeyboardInterrupt

    progress = InterruptOnceRunning()
    with pytest.raises(StageInterrupted) as caught:
        execute(workspace.script_path("mirror"), 2, ["wait"], 60, progress, warm=True)
    ranks = {record.pid for record in caught.value.run.records}
    assert ranks < progress.found and len(progress.found) == 3  # and their agent
    assert processes_of(progress.run_dir) == []


def test_a_server_killed_during_a_run_fails_the_run_and_leaves_nobody(start, processes_of):
    script = workspace.script_path("mirror")

    class KillOnceRunning(Progress):
        def start(self, launch, run_dir):
            self.run_dir, self.killed = run_dir, False

        def update(self):
            if not self.killed and (self.run_dir / "rank1.json").exists():
                self.killed = True
                server_of(os.getpid())[0].kill()

    run = execute(script, 2, ["wait"], 60, KillOnceRunning(), warm=True)
    assert run.status == "failed"
    assert processes_of(run.dir) == []
    assert {record.status for record in run.records} == {"incomplete"}
    assert start("mirror", "look", how="warm").status == "ok"


PARENT = """
import sys, threading, time
from fsdp2_lab.lab.launcher import execute
from fsdp2_lab.lab.live.progress import Progress
from fsdp2_lab.contract import workspace
execute(workspace.script_path("mirror"), 2, ["wait"], 600, Progress(), warm=True)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_server_and_ranks_end_with_the_process_they_belong_to(number, start, processes_of):
    before = set(workspace.runs_dir().iterdir())
    parent = psutil.Popen([sys.executable, "-c", PARENT], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    new = []
    while not (new and (new[0] / "rank1.json").exists()):
        assert time.monotonic() < deadline and parent.poll() is None
        time.sleep(0.1)
        new = list(set(workspace.runs_dir().iterdir()) - before)
    family = parent.children(recursive=True)
    assert len(family) >= 4  # server, agent and two ranks
    parent.send_signal(number)
    parent.wait(10)
    _, alive = psutil.wait_procs(family, timeout=10)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []
    assert processes_of(new[0]) == []


@pytest.mark.parametrize("name, value, because", [("FSDP2_LAB_WARM", "0", "FSDP2_LAB_WARM=0")])
def test_a_setting_for_all_launches_turns_it_off(name, value, because, monkeypatch):
    assert warm.why_cold(None) is None
    monkeypatch.setenv(name, value)
    assert warm.why_cold(None) == because
    assert warm.why_cold(True) is None


def test_where_forking_is_not_safe_it_says_why(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert warm.why_cold(True) == "forking ranks is not safe on darwin"


def test_what_a_fork_would_inherit_from_the_server_is_as_now(start, monkeypatch, tmp_path):
    import resource

    before = os.umask(0o077), resource.getrlimit(resource.RLIMIT_NOFILE), os.sched_getaffinity(0)
    try:
        start("inherited", how="warm")
        resource.setrlimit(resource.RLIMIT_NOFILE, (333, before[1][1]))
        os.sched_setaffinity(0, {min(before[2])})
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        seen = {how: start("inherited", how=how) for how in ("warm", "cold")}
    finally:
        os.umask(before[0])
        resource.setrlimit(resource.RLIMIT_NOFILE, before[1])
        os.sched_setaffinity(0, before[2])
    assert seen["warm"].launch.cold_because is None
    assert seen["warm"].records[0].values == seen["cold"].records[0].values
    assert seen["warm"].records[0].values["temporary"] == str(tmp_path)


def test_ranks_that_set_no_seed_draw_different_numbers(start):
    first, second = (start("unseeded", how="warm") for _ in range(2))
    drawn = [number for run in (first, second) for number in run.noted("drawn").values()]
    assert len(set(drawn)) == 4


def test_a_module_beside_the_script_hides_an_installed_one_as_in_a_cold_run(start):
    (workspace.launch_dir() / "yaml.py").write_text("HERE = 'beside the script'\n")
    try:
        run = start("hides", how="warm")
    finally:
        (workspace.launch_dir() / "yaml.py").unlink()
    assert run.noted("yaml") == {0: "beside the script", 1: "beside the script"}
    assert run.launch.cold_because == "yaml.py beside the script hides a module that warm ranks have imported"
    assert start("mirror", "look", how="warm").launch.cold_because is None
