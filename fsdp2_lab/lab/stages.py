"""Stage cells become scripts: `launch/NAME.py` is the header, the sections it builds on, and the cell as it stands."""

import ast
import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ..contract import workspace
from ..contract.errors import UsageError
from ..contract.settings import parse_settings

UNKNOWN_NOTEBOOK = "a notebook"

_MARK = re.compile(r'record\.stage\("(\w+)"\)  # ')
_OWNER = re.compile(r"^Written by (.+): change the cell there", re.MULTILINE)
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
    notebook: str = UNKNOWN_NOTEBOOK
    defaults: tuple[tuple[str, object], ...] = ()

    def write(self) -> Path:
        """Write the script and return its path.

        Raises `UsageError` for a name that another notebook owns or that is no safe file name, or for an
        `after` that is not yet written; `SyntaxError` where the cell does not parse. Nothing is written then.
        """
        path = workspace.script_path(self.name)
        self._check_owner(path)
        self._check_module()
        if self.defaults:
            parse_settings([], **dict(self.defaults))
        script = self._header() + "\n".join([*self._earlier_sections(), self._section()])
        try:
            compile(script, str(path), "exec")
        except SyntaxError as error:  # the cell alone is sound
            raise UsageError(f"Stage {self.name!r} cannot follow other code in one file: {error.msg}.") from None
        workspace.write_text(path, script)
        return path

    def update_later_scripts(self) -> list[Path]:
        """Bring this section up to date in every script that contains it; return those that changed.

        Whoever edits `shard` and launches `train` means the new `shard`.
        """
        own, changed = workspace.script_path(self.name), []
        for path in sorted(workspace.launch_dir().glob("*.py")):
            text = _text(path)
            if path == own or path.is_symlink() or not _OWNER.search(text):
                continue
            header, found = split_script(text)
            if found.get(self.name, self._section()) != self._section():
                found[self.name] = self._section()
                workspace.write_text(path, header + "\n".join(found.values()))
                changed.append(path)
        return changed

    def _header(self) -> str:
        tree = compile(self._code(), f"<stage {self.name}>", "exec", flags=ast.PyCF_ONLY_AST)
        compile(tree, f"<stage {self.name}>", "exec")  # what only the compiler sees, such as a stray `return`
        summary = ast.get_docstring(tree) or f"The stage `{self.name}`."
        defaults = ", ".join(f"{name}={value!r}" for name, value in self.defaults)
        return _HEADER.format(
            summary=_in_docstring(summary), name=self.name, notebook=_in_docstring(self.notebook), defaults=defaults
        )

    def _code(self) -> str:
        return self.cell.replace("\r\n", "\n").strip("\n")

    def _section(self) -> str:
        return f'record.stage("{self.name}")  # {self.notebook}\n{self._code()}\n'

    def _earlier_sections(self) -> list[str]:
        if self.after is None:
            return []
        path = workspace.script_path(self.after)
        follows = f"Stage {self.name!r} comes after {self.after!r}"
        if not path.exists():
            raise UsageError(f"{follows}, but {_shown(path)} is not written yet; run the cell of {self.after!r} first.")
        _, found = split_script(_text(path))
        if not found:
            raise UsageError(f"{follows}, but {_shown(path)} has no section in it; run that cell again.")
        if self.name in found:
            raise UsageError(f"Stage {self.name!r} cannot come after {self.after!r}, which already contains it.")
        return list(found.values())

    def _check_module(self) -> None:
        # A script's folder comes first where it imports: launch/random.py would hide the real `random`.
        if self.name in sys.stdlib_module_names or self.name == __package__.split(".")[0] or _is_installed(self.name):
            raise UsageError(f"{self.name!r} cannot name a stage: its script would hide the module of that name.")

    def _check_owner(self, path: Path) -> None:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise UsageError(f"{_shown(path)} is a link or no file at all: remove it, or give this stage another name.")
        if not path.exists():
            return
        header, _ = split_script(_text(path))
        owners = _OWNER.findall(header)  # the last is ours; a docstring may hold the same words
        if not owners:
            raise UsageError(f"{_shown(path)} was not written by a stage cell; give this stage another name.")
        owner = owners[-1]
        if owner not in (self.notebook, UNKNOWN_NOTEBOOK) and self.notebook != UNKNOWN_NOTEBOOK:
            raise UsageError(f"{_shown(path)} belongs to {owner}; give this stage another name, or delete the file.")


def sections(script: str) -> list[str]:
    """The names of a script's stages, in order."""
    return list(split_script(script)[1])


def split_script(text: str) -> tuple[str, dict[str, str]]:
    """A script's header, and its sections by name, in order. A section ends with one newline.

    Only our own marks at the top level count, not what a cell's strings contain.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # what a file of anybody's may hold
        return text, {}
    lines = text.splitlines(keepends=True)
    tops = [node.lineno - 1 for node in tree.body if isinstance(node, ast.Expr)]
    marks = [line for line in tops if _MARK.match(lines[line])]
    if not marks:
        return text, {}
    ends = [*marks[1:], len(lines)]
    sections = {
        _MARK.match(lines[start])[1]: "".join(lines[start:end]).rstrip("\n") + "\n"
        for start, end in zip(marks, ends, strict=True)
    }
    return "".join(lines[: marks[0]]), sections


def _is_installed(name: str) -> bool:
    """Whether scripts could import a module of that name from outside the project."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return False
    places = [spec.origin, *(spec.submodule_search_locations or [])] if spec else []
    if any({"site-packages", "dist-packages"} & set(Path(place).parts) for place in places if place):
        return True
    # Installed in place, as by `pip install -e`: a module that is neither the project's nor of the folder we stand in.
    if not spec or not spec.has_location:
        return False
    home = Path(spec.origin).resolve()
    return not home.is_relative_to(workspace.root()) and not home.is_relative_to(Path.cwd().resolve())


def _text(path: Path) -> str:
    """A script's text; none of what is no file or no UTF-8, which no stage cell has written."""
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else ""
    except ValueError:
        return ""


def _in_docstring(text: str) -> str:
    return text.replace("\\", r"\\").replace('"""', r"\"\"\"")


def _shown(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
