"""What a launch's display leaves in a notebook that nobody watched: static HTML, in the file and in an export."""

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

LAUNCH = """
import time
from fsdp2_lab.contract.record import LaunchRecord, RankRecord, StageRow, StepRow, write_launch, write_record
from fsdp2_lab.contract.workspace import runs_dir
from fsdp2_lab.lab.live.progress import make_progress
from fsdp2_lab.lab.runs import Run

run_dir = runs_dir() / "train-1"
launch = LaunchRecord("train-1", "launch/train.py", 1, "measured (CPU)", "torchrun launch/train.py", 0.0, 60.0)
record = RankRecord(0, 1, 0, "here", 1, "cpu", "measured (CPU)", 0.0, {}, [], {"steps": 300})
record.stages.append(StageRow("train"))
write_launch(run_dir, launch)
progress = make_progress()
progress.start(launch, run_dir)
for step in range(300):
    record.steps.append(StepRow(step, "train", 5.0, 100, 0.01))
    write_record(run_dir, record)
    progress.update()
    time.sleep(0.01)
launch.status, record.status, launch.seconds = "ok", "ok", 3.0
write_launch(run_dir, launch)
write_record(run_dir, record)
(run_dir / "logs").mkdir()
(run_dir / "logs" / "rank0.stdout").write_text("<script>alert(1)</script> \\x1b[31mred\\x1b[0m\\n")
progress.finish(Run(run_dir))
"""


@pytest.fixture(scope="module")
def executed(tmp_path_factory) -> nbformat.NotebookNode:
    folder = tmp_path_factory.mktemp("project")
    (folder / "launch").mkdir()
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(LAUNCH)])
    NotebookClient(notebook, kernel_name="python3", timeout=60, resources={"metadata": {"path": str(folder)}}).execute()
    return nbformat.reads(nbformat.writes(notebook), as_version=4)


def test_one_display_stays_and_it_is_static(executed):
    (output,) = executed.cells[0].outputs
    assert set(output.data) == {"text/plain", "text/html"}
    assert output.data["text/plain"].startswith("train-1 · ok · 1 rank")
    assert "widgets" not in executed.metadata
    assert "interrupt" not in str(output.data) and "<progress" not in str(output.data)


def test_an_export_shows_a_ranks_words_as_text(executed):
    page, _ = HTMLExporter().from_notebook_node(executed)
    assert "&lt;script&gt;alert(1)&lt;/script&gt; red" in page
    assert "<script>alert(1)" not in page
    assert "<details open" in page
