"""One launch after another, and two at once: none is in another's way, and nothing grows."""

import json
import shutil
import sys

import pytest
from harness import SCRIPTS, Lab
from promises import not_well, nothing_left

MIB = 2**20
# Ranks forked from a server that has imported already meet the same faults and end alike.
WARMTH = [
    "cold",
    pytest.param("warm", marks=pytest.mark.skipif(sys.platform != "linux", reason="ranks are forked on Linux only")),
]

# Name, what is raised by the launch, and the error as [rank, type, message, stage].
IN_TURN = {
    "exception": [1, "ValueError", "boom on rank 1", "work"],
    "thread": [1, "ValueError", "boom on rank 1", "work"],
    "sigkill": [1, "SIGKILL", None, "work"],
    "os-exit-0": [1, None, None, "work"],
    "exit-3": [1, None, None, "work"],
}


def put_scripts(lab) -> None:
    (lab.home / "launch").mkdir(exist_ok=True)
    for script in ("faults.py", "foreign_faults.py"):
        shutil.copy(SCRIPTS / script, lab.home / "launch" / script)


@pytest.mark.parametrize("warmth", WARMTH)
def test_after_every_fault_the_next_launch_works_at_once(warmth, lab):
    put_scripts(lab)
    lab.environment["FSDP2_LAB_WARM"] = str(int(warmth == "warm"))
    names = IN_TURN if warmth == "warm" else ("exception", "sigkill")  # a cold launch takes seconds
    command = [sys.executable, str(SCRIPTS / "in_turn.py"), str(lab.folder), *names]
    ended = lab.end(lab.start(command), 300)
    broken = nothing_left(lab, ended)
    assert ended.code == 0, ended.said
    told = json.loads(ended.stdout)
    lab.measures["seconds_to_report"] = max(each["seconds_to_report"] for each in told[::2])
    for fault, well in zip(told[::2], told[1::2], strict=True):
        name, expected = fault["name"], IN_TURN[fault["name"]]
        if (fault["raised"], fault["status"]) != ("StageFailed", "failed"):
            broken.append(f"{name}: raised {fault['raised']}, status {fault['status']}")
        elif any(want is not None and got != want for got, want in zip(fault["error"], expected, strict=True)):
            broken.append(f"{name}: told as {fault['error']}, expected {expected}")
        if fault["stages"] != [["join", "work"]] * 2:
            broken.append(f"{name}: recorded {fault['stages']}")
        if (well["raised"], well["status"]) != (None, "ok"):
            broken.append(f"after {name}: raised {well['raised']}, status {well['status']}: {well['message']}")
    assert not broken, "\n".join([*broken, ended.said])


@pytest.mark.parametrize("warmth", WARMTH)
def test_launches_in_a_row_grow_nothing(warmth, lab):
    put_scripts(lab)
    lab.environment["FSDP2_LAB_WARM"] = str(int(warmth == "warm"))
    launches = 20 if warmth == "warm" else 10
    command = [sys.executable, str(SCRIPTS / "many.py"), "well", str(lab.folder), str(launches)]
    ended = lab.end(lab.start(command), 400)
    broken = nothing_left(lab, ended)
    assert not broken, "\n".join([*broken, ended.said])
    assert ended.code == 0, ended.said
    samples = json.loads(ended.stdout)
    assert len(list((lab.home / "runs").iterdir())) == launches
    for quantity, most in {"processes": 0, "threads": 0, "descriptors": 0, "listening_ports": 0}.items():
        assert samples[-1][quantity] - samples[4][quantity] <= most, [sample[quantity] for sample in samples]
    rss = [sample["rss_bytes"] for sample in samples]
    assert rss[-1] - rss[4] < 5 * MIB, [round(each / MIB, 1) for each in rss]


def test_two_launchers_run_one_stage_at_once(lab, tmp_path):
    other = Lab(tmp_path / "other", home=lab.home)
    with other.watch:
        processes = [each.start(each.command(SCRIPTS / "faults.py", "well")) for each in (lab, other)]
        ended = [each.end(process) for each, process in zip((lab, other), processes, strict=True)]
    assert [each.code for each in ended] == [0, 0], ended[0].said + ended[1].said
    assert ended[0].told["id"] != ended[1].told["id"]
    broken = nothing_left(lab, ended[0]) + nothing_left(other, ended[1])
    assert not broken, "\n".join(broken)
    for each in ended:
        assert [stage["name"] for stage in each.told["stages"]] == ["join", "work"]
        assert [rank["rank"] for rank in each.told["stages"][1]["ranks"]] == [0, 1]


def test_one_launch_that_fails_leaves_another_alone(lab, tmp_path):
    other = Lab(tmp_path / "other", home=lab.home)
    with other.watch:
        process = other.start(other.command(SCRIPTS / "foreign_faults.py", "wait"))
        other.wait_until_reached(process)
        failed = lab.run(SCRIPTS / "foreign_faults.py", "exception")
        assert failed.code == 1, failed.said
        assert process.poll() is None and len(other.watch.alive()) >= 4  # two ranks, each with a child
        process.terminate()
        ended = other.end(process, 60)
    assert ended.told["status"] == "interrupted"


def test_a_run_folder_that_was_deleted_is_not_missed(lab):
    for runs_that_stay in (True, False):
        for sign in lab.folder.iterdir():
            sign.unlink()
        ended = lab.run(SCRIPTS / "foreign_faults.py", "well")
        broken = not_well(lab, ended, stage=None)
        assert not broken, "\n".join([*broken, ended.said])
        shutil.rmtree(ended.run_dir if runs_that_stay else lab.home / "runs")
    listed = lab.end(lab.start([sys.executable, "-m", "fsdp2_lab", "runs"]), 60)
    assert (listed.code, listed.stdout.decode().strip()) == (0, "no runs yet")
