"""Take the README's figures from the notebooks that made them."""

import base64
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
# File to the notebook, and the line of the cell that shows the figure.
FIGURES = {
    "first_run.png": ("00_start_here", "show.training(run)"),
    "one_step.png": ("05_sharding", 'show.who_holds_what(runs["layers"])'),
}


def figure(notebook: str, line: str) -> bytes:
    """The PNG under the cell that ends with a line. Raises `LookupError` where there is none."""
    for cell in nbformat.read(ROOT / "notebooks" / f"{notebook}.ipynb", as_version=4).cells:
        if cell.cell_type == "code" and cell.source.endswith(line):
            for output in cell.outputs:
                if "image/png" in output.get("data", {}):
                    return base64.b64decode(output.data["image/png"])
    raise LookupError(f"{notebook} shows no figure under {line}")


if __name__ == "__main__":
    for name, source in FIGURES.items():
        (ROOT / "docs" / name).write_bytes(figure(*source))
