"""What a GPU holds on top of allocated bytes, from fabricated records; and the allocator's history, from a stand-in."""

import pytest
import torch

from fsdp2_lab import launch
from fsdp2_lab.cli import main
from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.record import MEASURED_CUDA, StageRow, write_record
from fsdp2_lab.lab.runs import Run
from fsdp2_lab.rank import snapshot
from fsdp2_lab.show import overhead

MIB = 2**20


def _row(name: str, peak: int, reserved: int, after: int, used: int) -> StageRow:
    sizes = dict(peak_bytes=peak, reserved_bytes=reserved, reserved_after_bytes=after, device_used_bytes=used)
    return StageRow(name, **{key: value * MIB for key, value in sizes.items()})


def test_every_part_has_its_name_and_they_add_up(rank_record, tmp_path):
    stages = [_row("load", 10, 20, 20, 520), _row("train", 100, 130, 110, 800), _row("after", 5, 110, 110, 800)]
    for rank in range(2):
        write_record(tmp_path, rank_record(rank, how=MEASURED_CUDA, stages=stages))
    table = overhead(Run(tmp_path))
    # Outside the allocator: 500 MiB at first, 690 when the stage with the highest peak had ended.
    assert table["rank 0"].tolist() == [100, 30, 500, 190, 820]
    assert list(table.columns) == ["rank 0", "rank 1"] and table.columns.name == "MiB, measured (CUDA)"


def test_a_cpu_has_none(rank_record, tmp_path, is_one_sentence):
    write_record(tmp_path, rank_record(0, 1))
    with pytest.raises(UsageError, match=r"is measured \(CPU\)"):
        overhead(Run(tmp_path))


def test_a_snapshot_is_refused_where_no_gpu_is(home, capsys, is_one_sentence):
    (home / "launch").mkdir()
    script = home / "launch" / "nothing.py"
    script.write_text("")
    with pytest.raises(UsageError, match="no GPU") as caught:
        launch("nothing", ranks=2, snapshot=True)
    assert is_one_sentence(str(caught.value))
    assert main(["run", str(script), "--snapshot"]) == 2 and "no GPU" in capsys.readouterr().err
    assert not (home / "runs").exists()


def test_the_history_is_begun_once_and_exported_once(monkeypatch, tmp_path):
    told = []
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **how: told.append(("record", how)))
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", lambda path: told.append(("dump", path)))
    snapshot.begin_if_asked()
    snapshot.export(tmp_path / "none")
    assert told == []  # nobody asked
    monkeypatch.setenv("FSDP2_LAB_SNAPSHOT", "1")
    for _ in range(2):
        snapshot.begin_if_asked()
    for _ in range(2):
        snapshot.export(tmp_path / "one")
    assert told == [
        ("record", {"max_entries": snapshot.MOST_EVENTS}),
        ("dump", str(tmp_path / "one")),
        ("record", {"enabled": None}),
    ]
