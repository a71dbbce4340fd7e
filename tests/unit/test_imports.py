"""Imports go one way: faces → show, learn → lab, predict → contract ← rank. Read from the source, so none hides."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fsdp2_lab
from fsdp2_lab import rank

PACKAGE = Path(fsdp2_lab.__file__).parent
FACES = "faces"  # the files at the top: cli.py, magics.py and the package's own two

# For each part: the parts it may import, what it never imports, and what it imports inside functions only.
RULES = {
    "contract": ({"contract"}, {"torch", "IPython", "matplotlib"}, set()),
    "rank": ({"rank", "contract"}, {"IPython", "matplotlib", "pandas"}, set()),
    "agent": ({"agent", "contract"}, {"IPython", "matplotlib", "pandas"}, set()),
    "predict": ({"predict", "contract"}, {"IPython", "matplotlib", "pandas"}, set()),
    "lab": ({"lab", "contract"}, set(), {"torch"}),
    "show": ({"show", "lab", "predict", "contract"}, set(), {"torch"}),
    "learn": ({"learn", "lab", "contract", "show"}, set(), {"torch"}),
    FACES: ({FACES, "contract", "predict", "lab", "show", "learn"}, set(), {"torch"}),
}
FILES = sorted(PACKAGE.rglob("*.py"))


def part_of(module: str) -> str:
    """`fsdp2_lab.lab.runs` is of the part `lab`; `fsdp2_lab.cli` is a face."""
    names = module.split(".")
    return names[1] if len(names) > 1 and (PACKAGE / names[1]).is_dir() else FACES


def imports_of(source: str, file: Path) -> list[tuple[str, bool]]:
    """The modules that a file imports by their full names, and whether at module level."""
    package = ["fsdp2_lab", *file.relative_to(PACKAGE).parent.parts]
    tree, found = ast.parse(source), []
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        found += [(name, id(node) not in inside) for name in names]
    return found


def broken_rules(source: str, file: Path) -> list[str]:
    """What a file imports against the rules of its part."""
    part = part_of(".".join(["fsdp2_lab", *file.relative_to(PACKAGE).with_suffix("").parts]))
    parts, never, lazily = RULES[part]
    broken = []
    for name, at_module_level in imports_of(source, file):
        top = name.split(".")[0]
        if top == "fsdp2_lab" and part_of(name) not in parts:
            broken.append(f"{part} imports {name}")
        if top in never or (top in lazily and at_module_level):
            broken.append(f"{part} imports {name}")
    return broken


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_file_imports_only_what_its_part_may(file):
    assert broken_rules(file.read_text(encoding="utf-8"), file) == []


def test_every_folder_of_the_package_has_a_rule():
    assert {part_of(f"fsdp2_lab.{file.relative_to(PACKAGE).parts[0]}") for file in FILES} <= set(RULES)


def test_the_package_hands_on_nothing_of_the_rank_side():
    assert not [home for home in fsdp2_lab._HOMES.values() if home.startswith("rank")]


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("contract/record.py", "from ..lab import runs"),
        ("contract/record.py", "def read():\n    import torch"),
        ("contract/record.py", "from .. import cli"),
        ("rank/text.py", "from fsdp2_lab.lab.runs import Run"),
        ("rank/text.py", "import IPython.display"),
        ("predict/walk.py", "from ..lab import runs"),
        ("lab/runs.py", "from ..rank.recorder import Record"),
        ("lab/runs.py", "def read():\n    from .. import rank"),
        ("lab/runs.py", "try:\n    from torch import cuda\nexcept ImportError:\n    pass"),
        ("cli.py", "from .rank import open_record"),
        ("__init__.py", "from . import rank"),
    ],
)
def test_the_rules_notice_an_import_against_them(place, source):
    assert len(broken_rules(source, PACKAGE / place)) == 1


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("contract/record.py", "from . import workspace"),
        ("rank/text.py", "from ..contract.errors import UsageError"),
        ("lab/machine.py", "def count():\n    import torch"),
        ("cli.py", "from .lab.runs import Run"),
    ],
)
def test_the_rules_let_an_import_within_them_pass(place, source):
    assert broken_rules(source, PACKAGE / place) == []


def loaded_after(code: str) -> set[str]:
    """The top names of all modules that a fresh Python holds after a line of code."""
    line = f"{code}; import sys; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code", ["import fsdp2_lab", "from fsdp2_lab import *", "from fsdp2_lab.cli import main", "import fsdp2_lab.magics"]
)
def test_the_notebook_side_leaves_torch_alone(code):
    loaded = loaded_after(code)
    assert "fsdp2_lab" in loaded and "torch" not in loaded and "transformers" not in loaded


def test_the_rank_side_leaves_ipython_and_matplotlib_alone():
    loaded = loaded_after(f"from fsdp2_lab.rank import {', '.join(rank.__all__)}")
    assert "torch" in loaded
    assert not loaded & {"IPython", "matplotlib", "pandas"}
