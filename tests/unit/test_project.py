"""The project's own words are true: README, environment, Makefile and tree."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def _code_blocks(language: str) -> str:
    return "\n".join(re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL))


def test_every_link_and_image_of_the_readme_exists():
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(targets) > 7
    for target in targets:
        assert (ROOT / target).exists(), target


def test_every_path_in_the_readmes_tree_exists_and_no_folder_is_missing():
    tree = re.search(r"```\n(notebooks/.*?)```", README, re.DOTALL)[1]
    named, parent = set(), Path()
    for line in tree.splitlines():
        name = line.split()[0]
        path = parent / name if line.startswith("  ") else Path(name)
        parent = Path(name) if not line.startswith("  ") else parent
        assert (ROOT / path).exists(), path
        named.add(path.as_posix())
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    folders = {path.split("/")[0] for path in tracked if "/" in path and not path.startswith(".")}
    assert folders <= named
    assert {f"fsdp2_lab/{path.split('/')[1]}" for path in tracked if path.count("/") == 2 and "lab/" in path} <= named


def test_every_notebook_is_in_the_readmes_table():
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        assert f"(notebooks/{notebook.name})" in README


def test_every_make_target_that_the_readme_names_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"make ([a-z]+)\b", _code_blocks("bash") + " ".join(re.findall(r"`([^`\n]+)`", README))))
    assert {"run", "test", "lab"} <= named <= targets
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in named:
        assert f"make {target}" in listed


def test_every_fsdp2_lab_command_of_the_readme_is_understood():
    from fsdp2_lab.cli import _parser
    from fsdp2_lab.contract.settings import _parser as settings_parser

    commands = re.findall(r"^fsdp2-lab (.+?)(?: +#.*)?$", _code_blocks("bash"), re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        asked, rest = _parser().parse_known_args(command.split())
        if asked.command in ("run", "dryrun", "rehearse"):
            _, unknown = settings_parser().parse_args_into_dataclasses(
                rest, return_remaining_strings=True, look_for_args_file=False
            )
            assert not unknown, command
        else:
            assert not rest, command


def test_every_setting_is_named_in_the_readme():
    from dataclasses import fields

    from fsdp2_lab.contract.settings import Settings

    for setting in fields(Settings):
        assert f"`--{setting.name.replace('_', '-')}`" in README


def test_the_environment_file_goes_through_pyproject_and_gives_each_line_a_reason():
    text = (ROOT / "environment.yml").read_text()
    environment = yaml.safe_load(text)
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (pip,) = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    assert pip == ["--constraint constraints.txt", "--editable .[notebooks,test]"]
    assert set(pyproject["optional-dependencies"]) == {"notebooks", "test"}
    (python,) = [e for e in environment["dependencies"] if isinstance(e, str) and e.startswith("python")]
    assert python == f"python{pyproject['requires-python']}"
    for line in text[text.index("dependencies:") :].splitlines()[1:]:
        assert line.strip() in ("- pip:",) or "  # " in line, line


def test_constraints_pin_every_dependency_inside_its_range():
    from packaging.requirements import Requirement

    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    pins = {name.lower(): version for name, version in pins.items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = [*project["dependencies"], *(need for extra in project["optional-dependencies"].values() for need in extra)]
    for need in map(Requirement, needs):
        assert pins[need.name.lower()] in need.specifier, need.name
    assert pins["torch"] == "2.13.0"


def test_the_readmes_figures_are_the_notebooks():
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        from figures import FIGURES, figure
    finally:
        sys.path.pop(0)
    for name, source in FIGURES.items():
        assert (ROOT / "docs" / name).read_bytes() == figure(*source), name


@pytest.mark.parametrize("script", sorted((ROOT / "launch").glob("*.py")), ids=lambda path: path.stem)
def test_every_script_is_the_work_of_a_notebook_that_exists(script):
    text = script.read_text()
    owner = re.search(r"^Written by (.+?): change", text, re.MULTILINE)[1]
    assert (ROOT / owner).exists()
    compile(text, str(script), "exec")


def test_no_tracked_text_holds_a_machines_path():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for path in tracked:
        file = ROOT / path
        if file.suffix in {".py", ".md", ".ipynb", ".toml", ".yml", ".txt"} and file.exists():
            text = file.read_text()
            assert str(ROOT) not in text and str(Path.home()) + "/" not in text, path
