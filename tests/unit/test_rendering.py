"""How a run looks: as text in a terminal, as HTML in a notebook, with nothing in it taken for markup."""

import pytest

from fsdp2_lab.contract.record import StageRow, write_launch, write_record
from fsdp2_lab.lab.runs import Run


@pytest.fixture
def run(tmp_path, rank_record, launch_record) -> Run:
    stages = [StageRow("<b>mesh</b>", 0.04, 0, 2**20, 3 * 2**30)]
    write_record(tmp_path / "train-1", rank_record(0, how="<i>guessed</i>", stages=stages))
    write_launch(tmp_path / "train-1", launch_record())
    return Run(tmp_path / "train-1")


def test_a_run_is_one_line_and_a_table_in_a_terminal(run):
    first, head, row = repr(run).splitlines()
    assert first.startswith("train-1 · ok · 2 ranks")
    assert "loss 6.0000 → 3.0000 over 4 steps" in first
    assert head.split() == ["stage", "rank", "seconds", "bytes", "before", "bytes", "after", "peak", "bytes"]
    assert row.split() == ["<b>mesh</b>", "0", "40.0", "ms", "0.00", "MiB", "1.00", "MiB", "3.00", "GiB"]


def test_a_run_is_a_table_in_a_notebook_and_nothing_in_it_is_markup(run):
    html = run._repr_html_()
    assert "<table" in html and "3.00 GiB" in html
    assert "&lt;b&gt;mesh&lt;/b&gt;" in html and "<b>mesh" not in html
    assert "&lt;i&gt;guessed&lt;/i&gt;" in html and "<i>guessed" not in html


def test_a_run_without_records_says_so(tmp_path, launch_record):
    write_launch(tmp_path / "own-1", launch_record("own-1"))
    run = Run(tmp_path / "own-1")
    assert repr(run).splitlines()[1] == "(the script marked no stage)"
    assert "own-1" in run._repr_html_()


def test_what_was_not_measured_is_a_dash_and_not_a_zero(tmp_path, rank_record):
    write_record(tmp_path / "hand-1", rank_record(0, stages=[StageRow("mesh")], steps=[]))
    assert list(Run(tmp_path / "hand-1").table.iloc[0])[2:] == ["–", "–", "–", "–"]
