"""Progress: what rank 0 has recorded so far, as plain lines or as one line in a notebook."""

import pytest

from fsdp2_lab.contract.record import StageRow, rank_file, write_record
from fsdp2_lab.lab.progress import Display, Lines, make_progress
from fsdp2_lab.lab.runs import Run


@pytest.fixture
def lines(tmp_path, launch_record, capsys) -> Lines:
    lines = Lines()
    lines.start(launch_record(), tmp_path)
    return lines


def test_the_command_is_said_before_anything_else(lines, capsys):
    said = capsys.readouterr()
    assert said.err.startswith("torchrun --standalone --nproc_per_node=2 launch/train.py --steps 4 · 2 ranks")
    assert said.out == ""


@pytest.mark.parametrize(("threads", "said"), [(1, "2 ranks × 1 thread, "), (4, "2 ranks × 4 threads, ")])
def test_threads_per_rank_are_said_where_they_are_known(threads, said, tmp_path, launch_record, capsys):
    Lines().start(launch_record(threads_per_rank=threads), tmp_path)
    assert said in capsys.readouterr().err


def test_each_stage_is_said_once(lines, tmp_path, rank_record, capsys):
    capsys.readouterr()
    lines.update()
    write_record(tmp_path, rank_record(0, stages=[StageRow("mesh")], steps=[]))
    lines.update()
    lines.update()
    write_record(tmp_path, rank_record(0, stages=[StageRow("mesh"), StageRow("meta")], steps=[]))
    lines.update()
    assert capsys.readouterr().err.splitlines() == ["  stage mesh", "  stage meta"]


def test_a_record_that_cannot_be_read_does_not_stop_a_launch(lines, tmp_path, capsys):
    capsys.readouterr()
    rank_file(tmp_path, 0).write_text("{")
    lines.update()
    assert capsys.readouterr().err == ""


def test_a_step_is_said_with_its_loss_once_in_a_while(lines, tmp_path, rank_record, capsys, monkeypatch):
    write_record(tmp_path, rank_record(0))
    lines.update()
    capsys.readouterr()
    lines.update()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("fsdp2_lab.lab.progress._LINE_SECONDS", 0.0)
    lines.update()
    assert capsys.readouterr().err == "  stage train, 4 of 4 steps done, loss 3.0000\n"


def test_the_end_is_told_in_the_words_of_the_run(lines, tmp_path, rank_record, capsys):
    write_record(tmp_path / "train-1", rank_record(0))
    run = Run(tmp_path / "train-1")
    capsys.readouterr()
    lines.finish(run)
    assert capsys.readouterr().err.strip() == run.summary


def test_a_notebooks_line_is_replaced_and_escaped(tmp_path, launch_record, rank_record, monkeypatch):
    shown = []

    class Handle:
        def update(self, line):
            shown.append(line)

    def display(line, display_id):
        shown.append(line)
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr("fsdp2_lab.lab.progress._REFRESH_SECONDS", 0.0)
    progress = Display()
    progress.start(launch_record(command="torchrun <own>.py"), tmp_path)
    progress.update()
    write_record(tmp_path, rank_record(0))
    progress.update()
    assert "torchrun &lt;own&gt;.py" in shown[0]._repr_html_()
    assert "starting Python on every rank" in repr(shown[1])
    assert "stage train, 4 of 4 steps done, loss 3.0000" in repr(shown[2])


def test_without_a_notebook_progress_is_plain_lines():
    assert type(make_progress()) is Lines
