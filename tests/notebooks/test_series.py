"""The series as a reader runs it: every notebook through papermill, in a copy of the checkout."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def executed(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess]:
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("notebooks", "launch"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns(".ipynb_checkpoints", "__pycache__"))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FSDP2_LAB")}
    command = [sys.executable, "-m", "fsdp2_lab", "notebooks"]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=2400)
    return copy, done


def test_every_notebook_goes_through_with_exercises_unanswered(executed):
    _, done = executed
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for notebook in NOTEBOOKS:
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(notebook.name) and "yes" in line]
        assert float(line.split()[1]) > 0
    assert "Executing: 100%" in done.stderr  # papermill's bar moved to its end


def test_executing_the_series_rewrites_the_same_scripts(executed):
    copy, _ = executed
    ours = {path.name: path.read_text() for path in (ROOT / "launch").glob("*.py")}
    theirs = {path.name: path.read_text() for path in (copy / "launch").glob("*.py")}
    assert theirs == ours


def test_every_exercise_said_that_it_is_unanswered_and_went_on(executed):
    copy, _ = executed
    for result in sorted((copy / "runs" / "notebooks").glob("*.ipynb")):
        outputs = [o for cell in nbformat.read(result, 4).cells for o in cell.get("outputs", [])]
        said = [o.data.get("text/plain", "") for o in outputs if "data" in o]
        assert any(text.startswith("unanswered:") for text in said), result.name


def test_a_failing_cell_fails_the_series(tmp_path):
    (tmp_path / "launch").mkdir()
    (tmp_path / "notebooks").mkdir()
    broken = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("raise ValueError('as planned')")])
    nbformat.write(broken, tmp_path / "notebooks" / "01_broken.ipynb")
    command = [sys.executable, "-m", "fsdp2_lab", "notebooks"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "NO  ValueError: as planned" in done.stdout


def test_parameters_reach_the_notebook_and_unknown_chapters_are_named(tmp_path):
    (tmp_path / "launch").mkdir()
    (tmp_path / "notebooks").mkdir()
    cell = nbformat.v4.new_code_cell("ranks = 1", metadata={"tags": ["parameters"]})
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=[cell, nbformat.v4.new_code_cell("assert ranks == 3")], metadata=kernel)
    nbformat.write(notebook, tmp_path / "notebooks" / "01_parameters.ipynb")
    command = [sys.executable, "-m", "fsdp2_lab", "notebooks"]
    done = subprocess.run([*command, "-p", "ranks=3"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run([*command, "-p", "rank=3"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr.strip()) == (2, "-p rank: no such parameter; there are ranks.")
    done = subprocess.run([*command, "--only", "77"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.strip() == "--only 77: no such chapter; there are 01."


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_committed_notebook_is_executed_clean_and_holds_no_machines_paths(path):
    notebook = nbformat.read(path, 4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert any("image/png" in output.get("data", {}) for output in outputs), "a chapter has a figure"
    text = path.read_text()
    assert str(Path.home()) not in text and str(ROOT) not in text
    assert path.stat().st_size < 300_000
    assert "papermill" not in notebook.metadata


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_has_the_form_of_a_lesson(path):
    cells = nbformat.read(path, 4).cells
    assert cells[0].cell_type == "markdown" and "| Time |" in cells[0].source
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert code[0].source.startswith(f"%load_ext fsdp2_lab\n%chapter {path.stem}")
    assert [cell for cell in code if "parameters" in cell.metadata.get("tags", [])]
    for cell in code:
        assert len(cell.source.splitlines()) <= (42 if cell.source.startswith("%%stage") else 8), cell.source
