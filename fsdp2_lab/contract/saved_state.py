"""A saved training state: the folder `step-N`, what its `state.json` says, and which folders are whole.

Tensors are safetensors, everything else is JSON: nothing in it is ever unpickled.
"""

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import workspace
from .errors import UsageError
from .untrusted import build, parse_json, read_text

SCHEMA = 1
LATEST = "latest"
STATE_FILE = "state.json"
LOCK_FILE = ".lock"
UNFINISHED = ".unfinished"

_STEP = re.compile(r"step-([1-9][0-9]{0,11})")
_OURS = re.compile(_STEP.pattern + r"(\.[0-9a-f]{8}\.unfinished)?")
_SHARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\.safetensors")


@dataclass
class SavedTensor:
    """A whole tensor's shape and dtype, however many ranks hold parts of it."""

    dtype: str
    shape: list[int]


@dataclass
class SavedState:
    """What is saved beside the tensors. `step` counts the steps that are done.

    `sequences` is the global batch of a step and `seq` its tokens each: with `seed` they say which text comes next.
    `files` are the bytes of each safetensors file, `facts` the optimizer's values that are no tensors.
    """

    step: int
    ranks: int
    seed: int
    sequences: int
    seq: int
    optimizer: str
    facts: dict = field(default_factory=dict)
    tensors: dict[str, SavedTensor] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    schema: int = SCHEMA


def save_folder(save_to: str) -> Path:
    """Where `--save-to` is: `auto` is `training` among the project's checkpoints."""
    return workspace.checkpoints_dir() / "training" if save_to == "auto" else Path(save_to).expanduser()


def finished_steps(folder: Path) -> dict[int, Path]:
    """The finished states in a folder, by step, the newest last."""
    found = {}
    if folder.is_dir():
        for path in folder.iterdir():
            if (match := _STEP.fullmatch(path.name)) and path.is_dir():
                found[int(match[1])] = path
    return dict(sorted(found.items()))


def unfinished(folder: Path) -> list[Path]:
    """What runs that were killed while saving left behind."""
    return [path for path in sorted(folder.iterdir()) if path.name.endswith(UNFINISHED) and path.is_dir()]


def check_destination(folder: Path) -> None:
    """Raises `UsageError` for a folder that holds anything but saved states, which must not be mixed up with them."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"--save-to {folder} is a file; name a folder.")
    for path in folder.iterdir():
        if not _OURS.fullmatch(path.name) and path.name != LOCK_FILE:
            raise UsageError(f"--save-to {folder} holds {path.name!r:.80}, which is no saved state; name a new folder.")


def find_saved(resume: str, save_to: str) -> Path | None:
    """The folder that `--resume` means; `None` for no resuming, and for `latest` where nothing is saved yet."""
    if not resume:
        return None
    if resume == LATEST:
        return next(reversed(finished_steps(save_folder(save_to)).values()), None)
    return Path(resume).expanduser()


def read_state(folder: Path) -> SavedState:
    """Read a saved state's `state.json` and check that its files are whole.

    Raises `UsageError` for what is no saved state, an unfinished one, and a file that is missing, cut off or added.
    """
    if folder.name.endswith(UNFINISHED):
        raise UsageError(f"{folder} is unfinished: its run ended while saving; resume from the one before it.")
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder to resume from; name one that a run saved, as …/step-20, or `latest`.")
    try:
        data = parse_json(read_text(folder / STATE_FILE))
        state = build(SavedState, data)
        if state.schema != SCHEMA:
            raise ValueError(f"its schema is {state.schema}, expected {SCHEMA}")
        if state.step < 1 or state.ranks < 1 or not all(map(_SHARD.fullmatch, state.files)):
            raise ValueError("a step, a number of ranks or a file's name is none")
    except FileNotFoundError:
        within = next(reversed(finished_steps(folder).values()), None)
        hint = f"resume from {within}" if within else "name one that a run saved, as …/step-20"
        raise UsageError(f"{folder} has no {STATE_FILE}, so it is no saved state; {hint}.") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder / STATE_FILE} cannot be read ({error!s:.120}); resume from another.") from None
    _check_files(folder, state)
    return state


def _check_files(folder: Path, state: SavedState) -> None:
    there = {path.name: path for path in folder.glob("*.safetensors")}
    for name, size in state.files.items():
        if name not in there:
            raise UsageError(f"{folder} lacks {name}, which its {STATE_FILE} names; copy the whole folder again.")
        if (found := there[name].stat().st_size) != size:
            raise UsageError(f"{there[name]} has {found:,} bytes of {size:,}; copy it again, or resume from another.")
    if added := sorted(there.keys() - state.files.keys()):
        raise UsageError(f"{folder} holds {added[0]}, which its {STATE_FILE} does not name; move it away.")


def to_text(state: SavedState) -> str:
    return json.dumps(asdict(state), allow_nan=False) + "\n"
