"""What a planner leaves in a notebook that nobody watched: a figure and words, no box without a kernel behind it."""

import nbformat
import pytest
from nbclient import NotebookClient

PLAN = "from fsdp2_lab import show\nshow.planner('llama-2-7b', ranks=4, gib_per_gpu=24, batch=1, seq=2048)"


@pytest.fixture(scope="module")
def executed() -> nbformat.NotebookNode:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(PLAN)])
    NotebookClient(notebook, kernel_name="python3", timeout=120).execute()
    return nbformat.reads(nbformat.writes(notebook), as_version=4)


def test_the_figure_and_the_words_stay(executed):
    figure, words = executed.cells[0].outputs
    assert "image/png" in figure.data
    assert "It does not fit" in words.data["text/plain"] and "<code>torchrun " in words.data["text/html"]


def test_no_widget_and_no_widgets_state_is_saved(executed):
    assert "widgets" not in executed.metadata
    assert not [output for output in executed.cells[0].outputs if any("widget" in kind for kind in output.data)]
