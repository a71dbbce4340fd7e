"""The series, executed unattended: papermill over `notebooks/`, a table at the end."""

import sys
import threading
import time
from base64 import b64decode, b64encode
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path

import nbformat
import papermill
import yaml

from ..contract import workspace
from ..contract.errors import UsageError
from .live.standing import where
from .runs import Run

_NARRATE_SECONDS = 10.0
_COLOURS = 128  # in a committed figure


def execute_series(only: list[str] | None, parameters: list[str], in_place: bool = False) -> bool:
    """Execute the notebooks and print a table; `True` where every one went through.

    `only` are chapter numbers, `parameters` are `name=value`. Results go to `runs/notebooks/` unless they
    are kept in place. Raises `UsageError` for a chapter or a parameter that cannot be used.
    """
    folder = workspace.root() / "notebooks"
    results = folder if in_place else workspace.runs_dir() / "notebooks"
    results.mkdir(parents=True, exist_ok=True)
    chosen = _chosen(folder, only)
    values = dict(_parameter(text) for text in parameters)
    known = {notebook: papermill.inspect_notebook(notebook).keys() for notebook in chosen if values}
    every = sorted(set().union(*known.values()))
    if unknown := sorted(set(values) - set(every)):
        raise UsageError(f"-p {unknown[0]}: no such parameter; there are {', '.join(every)}.")
    outcomes = []
    for notebook in chosen:
        print(f"\n{notebook.name}", flush=True)
        start = time.monotonic()
        own = {name: value for name, value in values.items() if name in known[notebook]}
        with _narrated():
            problem = _execute(notebook, results / notebook.name, own, folder)
        outcomes.append((notebook.name, time.monotonic() - start, problem))
    _print_table(outcomes, results)
    return not any(problem for _, _, problem in outcomes)


@contextmanager
def _narrated():
    # papermill's bar moves from cell to cell; who waits for a long one sees how far its run has come.
    ended = threading.Event()
    thread = threading.Thread(target=_narrate, args=(ended,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _narrate(ended: threading.Event) -> None:
    while not ended.wait(_NARRATE_SECONDS):
        newest = max(workspace.runs_dir().glob("*/run.json"), key=lambda file: file.stat().st_mtime, default=None)
        with suppress(UsageError, OSError):
            run = newest and Run(newest.parent)
            if run and run.status == "running" and run.records:
                print(f"\n  {run.id}: {where(run.records[0])}", file=sys.stderr, flush=True)


def _execute(notebook: Path, result: Path, values: dict, folder: Path) -> str | None:
    try:
        papermill.execute_notebook(
            notebook,
            result,
            parameters=values,
            cwd=folder,
            kernel_name="python3",
            progress_bar=True,
            extra_arguments=["--IPKernelApp.log_level=ERROR"],  # its notice about TCP breaks the progress bar
        )
    except papermill.PapermillExecutionError as error:
        print(error, flush=True)
        return f"{error.ename}: {str(error.evalue).splitlines()[0] if error.evalue else ''}"
    finally:
        _make_ready_to_commit(result)
    return None


def _make_ready_to_commit(result: Path) -> None:
    # papermill notes paths and times of this machine, which would differ in every commit.
    notebook = nbformat.read(result, as_version=4)
    for holder in (notebook, *notebook.cells):
        for trace in ("papermill", "execution"):
            holder.metadata.pop(trace, None)
    notebook.metadata.get("language_info", {}).pop("version", None)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = _in_few_colours(output.data["image/png"])
    nbformat.write(notebook, result)


def _in_few_colours(png: str) -> str:
    """A figure, base64, with a palette instead of four channels: a third of the bytes, and looks the same."""
    from PIL import Image  # matplotlib brings it

    image = Image.open(BytesIO(b64decode(png)))
    if image.mode == "P":
        return png
    flat = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA")).convert("RGB")
    file = BytesIO()
    flat.quantize(_COLOURS, dither=Image.Dither.NONE).save(file, format="png", optimize=True)
    return b64encode(file.getvalue()).decode()


def _chosen(folder: Path, only: list[str] | None) -> list[Path]:
    found = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    if not found:
        raise UsageError(f"No notebooks in {folder}; run this in a checkout of the workbook.")
    if only is None:
        return found
    chosen = [path for path in found if path.name[:2] in only]
    if unknown := sorted(set(only) - {path.name[:2] for path in chosen}):
        known = ", ".join(path.name[:2] for path in found)
        raise UsageError(f"--only {unknown[0]}: no such chapter; there are {known}.")
    return chosen


def _parameter(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not (equals and name.isidentifier()):
        raise UsageError(f"-p {text}: expected NAME=VALUE, as in -p ranks=4.")
    return name, yaml.safe_load(value)  # as papermill reads its own -p


def _print_table(outcomes: list[tuple], results: Path) -> None:
    print(f"\n{'notebook':<36}{'seconds':>9}  ok")
    for name, seconds, problem in outcomes:
        print(f"{name:<36}{seconds:>9.1f}  {'yes' if problem is None else 'NO  ' + problem}")
    print(f"{'all':<36}{sum(seconds for _, seconds, _ in outcomes):>9.1f}")
    print(f"\nResults: {results}. Open them with: make lab")
