"""Take the README's figure from the notebook that made it: the first PNG of `notebooks/00_start_here.ipynb`."""

import base64
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent


def first_figure() -> bytes:
    notebook = nbformat.read(ROOT / "notebooks" / "00_start_here.ipynb", as_version=4)
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    return next(base64.b64decode(o.data["image/png"]) for o in outputs if "image/png" in o.get("data", {}))


if __name__ == "__main__":
    (ROOT / "docs" / "first_run.png").write_bytes(first_figure())
