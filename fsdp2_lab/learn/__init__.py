"""Exercises: predict, measure, learn why it differs. `from fsdp2_lab.learn import q05a` finds one by its name."""

import re
from importlib import import_module
from pkgutil import iter_modules

from ..contract.errors import UsageError
from ..show.labels import CHAPTERS
from .exercise import Choice, Exercise, Repair
from .progress import Standing, reset, standings
from .progress_table import Progress
from .verdict import Verdict

__all__ = ["Choice", "Exercise", "Progress", "Repair", "Verdict", "progress", "reset"]

_NAME = re.compile(r"q(\d\d)[a-z]")


def exercises(chapter: str | None = None) -> list[str]:
    """The names of a chapter's exercises, by its number, or of all, in their order."""
    homes = sorted(module.name for module in iter_modules(__path__) if module.name.startswith("chapter_"))
    names = [name for home in homes for name in vars(import_module(f".{home}", __name__)) if _NAME.fullmatch(name)]
    return sorted(name for name in names if chapter in (None, name[1:3]))


def progress(chapter: str | None = None) -> Progress:
    """A table of what you have answered, in a chapter, by its number as "05", or in the whole series.

    Raises `UsageError` for an unknown chapter, and where `fsdp2_lab_progress.json` cannot be read.
    """
    if chapter is not None and not exercises(chapter):
        raise UsageError(f"No exercises of chapter {chapter!r:.20}: expected one of {', '.join(CHAPTERS)}.")
    kept = standings()
    return Progress({name: kept.get(name, Standing()) for name in exercises(chapter)})


def __getattr__(name: str):
    if found := _NAME.fullmatch(name):
        try:
            return getattr(import_module(f".chapter_{found[1]}", __name__), name)
        except (ModuleNotFoundError, AttributeError):
            pass
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
