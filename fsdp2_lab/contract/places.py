"""Last words of each rank: where it stands, the collective it waits in, what it raised; read before ranks are ended."""

import re
import signal
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import workspace
from .record import RankError
from .untrusted import build, parse_json, read_text

# A rank says where it stands on this signal. SIGUSR1 is left to schedulers, which warn jobs with it.
STAND_SIGNAL = signal.SIGUSR2


def stage_and_step() -> tuple[str | None, int | None]:
    """The stage and the step that this rank is in; an open record replaces this function by its own."""
    return None, None


@dataclass
class Collective:
    """The latest collective that a rank began in one process group: the group's `number`th, counted from 1.

    `members` are the group's ranks; none where they are not known.
    """

    group: str
    number: int
    name: str
    sizes: list
    waiting: bool
    began_unix_seconds: float
    members: list[int] = field(default_factory=list)


@dataclass
class Place:
    """Where one rank stood at `unix_seconds`; `None` until it was asked or raised. `finished`: at its script's end.
    `silent`: it did not answer, and its frames are those that the signal left.

    `frames` are (file, line, function), outermost first; `stage` and `step` are the record's, where there is one.
    """

    rank: int
    pid: int
    unix_seconds: float | None = None
    stage: str | None = None
    step: int | None = None
    frames: list = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    error: RankError | None = None
    finished: bool = False
    silent: bool = False


@dataclass
class Exit:
    """How one rank ended, as torchrun's agent saw it; `asked` says that the agent had told it to."""

    code: int
    monotonic_seconds: float
    asked: bool


def place_file(logs: Path, rank: int | str) -> Path:
    return logs / f"rank{rank}.place.json"


def stack_file(logs: Path, rank: int | str) -> Path:
    """What `faulthandler` writes: the stacks of all threads, in text."""
    return logs / f"rank{rank}.stack"


def exits_file(logs: Path) -> Path:
    return logs / "exits.json"


def write_place(logs: Path, place: Place) -> None:
    workspace.write_json(place_file(logs, place.rank), asdict(place))


def read_place(logs: Path, rank: int | str) -> Place | None:
    """A rank's place; `None` where it has written none that is whole."""
    return _read(place_file(logs, rank), lambda data: build(Place, data))


def read_stack(logs: Path, rank: int) -> list[tuple[str, int, str]]:
    """The main thread's frames that `faulthandler` wrote last, outermost first; none where it wrote none."""
    try:
        text = read_text(stack_file(logs, rank))
    except (OSError, ValueError):
        return []
    block = text.rpartition("(most recent call first):")[2]  # the oldest thread comes last; any may have met the signal
    rows = re.findall(r'^  File "(.*)", line (\d+) in (.*)$', block, re.MULTILINE)
    return [(file, int(line), name) for file, line, name in reversed(rows)]


def write_exits(logs: Path, exits: dict[str, Exit]) -> None:
    workspace.write_json(exits_file(logs), {rank: asdict(each) for rank, each in exits.items()})


def read_exits(logs: Path) -> dict[str, Exit]:
    """The ranks that have ended; empty where the agent did not live to say."""
    return _read(exits_file(logs), lambda data: {rank: build(Exit, each) for rank, each in data.items()}) or {}


def _read(path: Path, convert):
    try:
        return convert(parse_json(read_text(path)))
    except (OSError, ValueError, AttributeError):  # the last where it is no object
        return None
