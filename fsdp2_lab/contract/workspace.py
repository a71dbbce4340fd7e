"""Where scripts, runs and checkpoints live, and which names may become paths there."""

import json
import os
import re
import secrets
from pathlib import Path

from .errors import UsageError

HOME_VARIABLE = "FSDP2_LAB_HOME"
RUN_DIR_VARIABLE = "FSDP2_LAB_RUN_DIR"
TIMEOUT_VARIABLE = "FSDP2_LAB_TIMEOUT_SECONDS"
SNAPSHOT_VARIABLE = "FSDP2_LAB_SNAPSHOT"
PARENT_VARIABLE = "FSDP2_LAB_PARENT_PID"

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}", re.ASCII)
_DEVICES = re.compile(r"con|nul|aux|prn|com\d|lpt\d")  # no file names on Windows, where people clone, too
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", re.ASCII)


def root() -> Path:
    """The project folder: `FSDP2_LAB_HOME`, else the nearest folder upward with `launch/` in it.

    The search starts at the working directory and ends at the first folder that holds a
    `pyproject.toml` or a `.git`; when nothing is found, the working directory is the project.
    """
    if home := os.environ.get(HOME_VARIABLE):
        return Path(home).resolve()
    here = Path.cwd().resolve()
    for folder in (here, *here.parents):
        if (folder / "launch").is_dir():
            return folder
        if (folder / "pyproject.toml").exists() or (folder / ".git").exists():
            break
    return here


def launch_dir() -> Path:
    return root() / "launch"


def runs_dir() -> Path:
    return root() / "runs"


def checkpoints_dir() -> Path:
    return root() / "checkpoints"


def check_stage_name(name: str) -> str:
    """The name itself, once it is safe as a file name.

    Raises `UsageError` unless it is 1 to 40 lower-case letters, digits and underscores, a letter first, and for
    names that some systems keep for devices.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r:.60} cannot name a stage: use 1 to 40 lower-case letters, digits and "
            "underscores, beginning with a letter."
        )
    if _DEVICES.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a stage: Windows keeps that name for a device.")
    return name


def script_path(stage: str) -> Path:
    return launch_dir() / f"{check_stage_name(stage)}.py"


def run_path(run_id: str) -> Path:
    """The folder of one run. Raises `UsageError` where the id is not one that a run can have."""
    if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id):
        raise UsageError(f"{run_id!r:.60} is no run id; `fsdp2-lab runs` lists them.")
    return runs_dir() / run_id


def new_run_path(script: Path, *marks: str) -> Path:
    """The folder for a new run of a script: its name, made safe, and what tells this run from others."""
    stem = re.sub(r"[^A-Za-z0-9_-]", "-", script.stem).strip("-_")[:40] or "script"
    return run_path("-".join([stem, *marks]))


def make_run_dir(run_dir: Path) -> None:
    """Make the folder of a new run, with the modes that the umask asks for.

    Raises `UsageError` where it exists, so that nobody's folder is written into, or where it cannot be made.
    """
    runs = run_dir.parent
    try:
        runs.mkdir(parents=True, exist_ok=True)
        run_dir.mkdir()
    except FileExistsError as error:
        if not runs.is_dir():
            raise _cannot_write(run_dir, error) from error
        raise UsageError(f"{run_dir} exists already, and may be another's; launch again.") from error
    except OSError as error:
        if runs.is_dir() and runs.stat().st_uid != os.geteuid():
            raise UsageError(
                f"{runs} belongs to another user, and you cannot write there ({error.strerror}): ask for permission, "
                f"or set {HOME_VARIABLE} to a folder of yours."
            ) from error
        raise _cannot_write(run_dir, error) from error


def write_text(path: Path, text: str) -> None:
    """Replace a file's text in one step, so that a reader sees the old or the new, never a part.

    Raises `UsageError` where the folder or file cannot be written.
    """
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(temporary, "x", encoding="utf-8") as file:  # its mode is what the umask leaves
                file.write(text)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _cannot_write(path, error) from error


def write_json(path: Path, value) -> None:
    write_text(path, json.dumps(value, allow_nan=False) + "\n")


def _cannot_write(path: Path, error: OSError) -> UsageError:
    there = next(parent for parent in path.parents if parent.exists())
    mend = f"make {there} writable" if there.is_dir() else f"move the file {there} away"
    return UsageError(
        f"Cannot write {path} ({error.strerror}): {mend}, or set {HOME_VARIABLE} to a folder that is writable."
    )
