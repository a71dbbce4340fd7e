"""What a reader has answered, kept in a small JSON in the project folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ..contract import workspace
from ..contract.errors import UsageError
from ..contract.untrusted import build, parse_json, read_text
from ..show.labels import CHAPTERS

SCHEMA_VERSION = 1
_MOST_BYTES = 2**20


@dataclass
class Standing:
    """How one exercise stands: right or not yet, how often it was tried, what was asked for."""

    right: bool | None = None
    tries: int = 0
    hints: int = 0
    solution: bool = False


@dataclass
class _Kept:
    schema_version: int
    exercises: dict[str, Standing]


def standings() -> dict[str, Standing]:
    """How each exercise stands that was tried or asked about. Raises `UsageError` where the file cannot be read."""
    return _read(_path())


def note(name: str, *, right: bool | None = None, hints: int = 0, solution: bool = False) -> None:
    """Keep that an exercise was tried, or that a hint or its solution was asked for; one that is right stays right.

    An answer matters more than its bookkeeping: where the file cannot be read or written, nothing is kept.
    """
    with suppress(UsageError, OSError), _alone():
        kept = _read(_path())
        standing = kept.setdefault(name, Standing())
        if right is not None:
            standing.right = standing.right or right
            standing.tries += 1
        standing.hints = max(standing.hints, hints)
        standing.solution = standing.solution or solution
        _write(kept)


def reset(chapter: str | None = None) -> None:
    """Forget what was answered in a chapter, by its number, or in all.

    Raises `UsageError` for an unknown chapter, and where the file cannot be read or written.
    """
    if chapter is not None and chapter not in CHAPTERS:
        raise UsageError(f"No chapter {chapter!r:.20}: expected one of {', '.join(CHAPTERS)}.")
    with _alone():
        if chapter is None:
            _path().unlink(missing_ok=True)
            return
        kept = _read(_path())
        _write({name: standing for name, standing in kept.items() if name[1:3] != chapter})


def _path() -> Path:
    return workspace.root() / "fsdp2_lab_progress.json"


@contextmanager
def _alone() -> Iterator[None]:
    # Two kernels may check at once: each reads, adds and replaces the file while it holds the folder.
    folder = os.open(workspace.root(), os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems lock no folders
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _read(path: Path) -> dict[str, Standing]:
    if not path.exists():
        return {}
    try:
        kept = build(_Kept, parse_json(read_text(path, _MOST_BYTES)))
        if kept.schema_version != SCHEMA_VERSION:
            raise ValueError(f"its version is {kept.schema_version}, this one reads {SCHEMA_VERSION}")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path} keeps no progress that can be read ({error}); move it away, or run `fsdp2-lab progress --reset`."
        ) from None
    return kept.exercises


def _write(kept: dict[str, Standing]) -> None:
    workspace.write_json(_path(), asdict(_Kept(SCHEMA_VERSION, dict(sorted(kept.items())))))
