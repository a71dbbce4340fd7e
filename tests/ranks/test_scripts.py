"""Every script in launch/ runs by hand under plain torchrun, and leaves a record per rank."""

from pathlib import Path

import pytest

from fsdp2_lab.contract.record import read_records
from fsdp2_lab.lab.stages import sections

LAUNCH = Path(__file__).parents[2] / "launch"
SMALL = ["--steps", "3", "--batch", "2", "--seq", "32"]


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("script", sorted(LAUNCH.glob("*.py")), ids=lambda path: path.stem)
def test_a_script_runs_by_hand(script, ranks, project):
    # No option at all with two ranks, as the README says it; pretrain would take its minute.
    argv = SMALL if ranks == 3 or script.stem == "pretrain" else []
    before = project.runs
    ended = project.torchrun(script, *argv, ranks=ranks)
    assert ended.code == 0, ended.stderr
    assert "Traceback" not in ended.stderr

    (folder,) = set(project.runs) - set(before)
    records = read_records(folder)
    assert [record.rank for record in records] == list(range(ranks))
    assert [record.status for record in records] == ["ok"] * ranks
    assert {record.world_size for record in records} == {ranks}
    assert [row.name for row in records[0].stages] == sections(script.read_text(encoding="utf-8"))
    assert all(row.seconds > 0 and row.peak_bytes >= row.bytes_before for row in records[0].stages)

    assert f"rank 0 of {ranks} on cpu, measured (CPU)" in ended.stdout
    assert ended.stdout.count("records of all ranks:") == 1
    assert str(folder) in ended.stdout
