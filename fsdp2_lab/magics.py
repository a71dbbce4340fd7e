"""The notebook's face: `%chapter` says which notebook this is, `%%stage` writes its script."""

import ast
import os
from pathlib import Path

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from .contract.errors import StageSyntaxError, UsageError
from .lab.machine import machine
from .lab.stages import UNKNOWN_NOTEBOOK, Stage, sections


@magics_class
class LabMagics(Magics):
    """Registered by `%load_ext fsdp2_lab`."""

    notebook = None

    @line_magic
    def chapter(self, line: str) -> None:
        """`%chapter 05_sharding`: name this notebook, so that its scripts say where they come from."""
        name = line.strip()
        if not name.isascii() or not name.replace("_", "").replace("-", "").isalnum():
            raise UsageError(f"%chapter {name!r}: expected the notebook's file name without .ipynb, as in 05_sharding.")
        self.notebook = f"notebooks/{name}.ipynb"
        print(f"{machine().describe()}. Scripts go to launch/, records to runs/.")

    @magic_arguments()
    @argument("name", help="the stage's name; the script is launch/NAME.py")
    @argument("--after", metavar="PREV", help="the stage this one builds on")
    @argument("--defaults", nargs="*", default=[], metavar="NAME=VALUE", help="settings this script has its own for")
    @cell_magic
    def stage(self, line: str, cell: str) -> None:
        """`%%stage NAME [--after PREV]`: write this cell, with the stages before it, to `launch/NAME.py`."""
        asked = parse_argstring(self.stage, line)
        defaults = tuple(_default(text) for text in asked.defaults)
        try:
            stage = Stage(asked.name, cell, asked.after, self.notebook or _session_notebook(), defaults)
            path = stage.write()
        except SyntaxError as error:
            raise StageSyntaxError(error) from None
        text = path.read_text(encoding="utf-8")
        print(f"{path.parent.name}/{path.name}: {' → '.join(sections(text))} ({len(text.splitlines())} lines)")
        if followed := stage.update_later_scripts():
            print(f"changed with it: {', '.join(script.name for script in followed)}")


def _default(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not (name.isidentifier() and equals):
        raise UsageError(f"--defaults {text}: expected NAME=VALUE, as in steps=240.")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _session_notebook() -> str:
    # JupyterLab tells the kernel which notebook it serves; elsewhere `%chapter` can say it.
    path = os.environ.get("JPY_SESSION_NAME")
    return Path(path).name if path else UNKNOWN_NOTEBOOK
