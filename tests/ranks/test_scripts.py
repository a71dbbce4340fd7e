"""Every script in launch/ runs and leaves a record per rank; the README's by hand, under plain torchrun."""

from pathlib import Path

import pytest

from fsdp2_lab.contract.record import read_records
from fsdp2_lab.lab import warm
from fsdp2_lab.lab.launcher import execute
from fsdp2_lab.lab.live.progress import Progress
from fsdp2_lab.lab.stages import sections

LAUNCH = Path(__file__).parents[2] / "launch"
SMALL = ["--steps", "3", "--batch", "2", "--seq", "32"]
# lonely hangs and load_twice fails, which are their lessons; pretrain and fill are programs for one process.
APART = {"lonely", "load_twice", "pretrain", "fill"}
SCRIPTS = sorted(path for path in LAUNCH.glob("*.py") if path.stem not in APART)


def check_records(folder: Path, ranks: int, script: Path) -> None:
    records = read_records(folder)
    assert [record.rank for record in records] == list(range(ranks))
    assert [record.status for record in records] == ["ok"] * ranks
    assert {record.world_size for record in records} == {ranks}
    assert [row.name for row in records[0].stages] == sections(script.read_text(encoding="utf-8"))
    assert all(row.seconds > 0 and row.peak_bytes >= row.bytes_before for row in records[0].stages)


@pytest.mark.parametrize("stage", ["mesh", "zero3", "pretrain", "fill", "train"])
def test_a_script_runs_by_hand(stage, project):
    # No option at all, as the README says it; pretrain would take its minute.
    script, argv = LAUNCH / f"{stage}.py", SMALL if stage in ("pretrain", "fill") else []
    before = project.runs
    ended = project.torchrun(script, *argv, ranks=2)
    assert ended.code == 0, ended.stderr
    assert "Traceback" not in ended.stderr

    (folder,) = set(project.runs) - set(before)
    check_records(folder, 2, script)
    assert "rank 0 of 2 on cpu, measured (CPU)" in ended.stdout
    assert ended.stdout.count("records of all ranks:") == 1
    assert str(folder) in ended.stdout


@pytest.fixture(scope="module")
def launched(tmp_path_factory):
    """Launches a script on three ranks, which divide few sizes; forked where that is possible, to save the imports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FSDP2_LAB_HOME", str(tmp_path_factory.mktemp("scripts")))
        # Some scripts need a checkpoint, and all of them take one that is there.
        pretrained = execute(LAUNCH / "pretrain.py", 1, SMALL, 120, Progress(), warm=None)
        assert pretrained.status == "ok", pretrained.failure()
        yield lambda script: execute(script, 3, SMALL, 120, Progress(), warm=None)
        warm.stop()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs_on_three_ranks(script, launched):
    run = launched(script)
    assert run.status == "ok", run.failure()
    check_records(run.dir, 3, script)
