"""Stage cells become scripts: `launch/NAME.py` is the header, the sections it builds on, and the cell as it stands."""

import ast
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ..contract import workspace
from ..contract.errors import UsageError
from ..contract.settings import parse_settings

_FIRST_SECTION = re.compile(r'^record\.stage\("', re.MULTILINE)
_SECTION = re.compile(r'^record\.stage\("(\w+)"\)', re.MULTILINE)
_OWNER = re.compile(r"^Written by (.+?): change the cell there", re.MULTILINE)

_HEADER = '''"""{summary}

    torchrun --standalone --nproc_per_node=2 launch/{name}.py

Written by {notebook}: change the cell there and run it, and this file follows.
"""

from fsdp2_lab.rank import open_record, read_settings

settings = read_settings({defaults})
record = open_record(settings)

'''


@dataclass(frozen=True)
class Stage:
    """A stage cell: its name, its text, the stage it comes after, and the notebook it stands in.

    `defaults` are settings for which this script has values of its own.
    """

    name: str
    cell: str
    after: str | None = None
    notebook: str = "a notebook"
    defaults: tuple[tuple[str, object], ...] = ()

    def write(self) -> Path:
        """Write the script and return its path.

        Raises `UsageError` for a name that another notebook owns or that is no safe file name, or for an
        `after` that is not yet written; `SyntaxError` where the cell does not parse. Nothing is written then.
        """
        path = workspace.script_path(self.name)
        self._check_owner(path)
        self._check_module(path)
        if self.defaults:
            parse_settings([], **dict(self.defaults))
        script = self._header() + self._earlier_sections() + self._section()
        compile(script, str(path), "exec")
        workspace.write_text(path, script)
        return path

    def _header(self) -> str:
        tree = ast.parse(self.cell, filename=f"<stage {self.name}>")
        summary = ast.get_docstring(tree) or f"The stage `{self.name}`."
        summary = summary.replace("\\", r"\\").replace('"""', r"\"\"\"")
        defaults = ", ".join(f"{name}={value!r}" for name, value in self.defaults)
        return _HEADER.format(summary=summary, name=self.name, notebook=self.notebook, defaults=defaults)

    def _section(self) -> str:
        return f'record.stage("{self.name}")  # {self.notebook}\n{self.cell.strip(chr(10))}\n'

    def _earlier_sections(self) -> str:
        if self.after is None:
            return ""
        path = workspace.script_path(self.after)
        follows = f"Stage {self.name!r} comes after {self.after!r}"
        if not path.exists():
            raise UsageError(f"{follows}, but {_shown(path)} is not written yet; run the cell of {self.after!r} first.")
        text = path.read_text(encoding="utf-8")
        start = _FIRST_SECTION.search(text)
        if not start:
            raise UsageError(f"{follows}, but {_shown(path)} has no section in it; run that cell again.")
        if self.name in sections(text):
            raise UsageError(f"Stage {self.name!r} cannot come after {self.after!r}, which already contains it.")
        return text[start.start() :].rstrip("\n") + "\n\n"

    def _check_module(self, path: Path) -> None:
        # A script's folder comes first where it imports: launch/random.py would hide the real `random`.
        spec = find_spec(self.name)
        if spec and spec.origin != str(path):
            raise UsageError(
                f"{self.name!r} cannot name a stage: a script of that name would hide the module {self.name}."
            )

    def _check_owner(self, path: Path) -> None:
        if not path.exists():
            return
        owner = _OWNER.search(path.read_text(encoding="utf-8"))
        if owner is None:
            raise UsageError(f"{_shown(path)} was not written by a stage cell; give this stage another name.")
        if owner[1] != self.notebook:
            raise UsageError(f"{_shown(path)} belongs to {owner[1]}; give this stage another name, or delete the file.")


def sections(script: str) -> list[str]:
    """The names of a script's stages, in order."""
    return _SECTION.findall(script)


def _shown(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
