"""Who waits for whom: each rank's line and its latest collective, read as a diagnosis."""

import os
import sysconfig
from pathlib import Path

from ...contract.places import Collective, Place
from ...contract.units import format_seconds
from .diagnosis import is_consequence

_PACKAGE = str(Path(__file__).parents[2])
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {_PACKAGE})


def explain(places: dict[int, Place], ranks: int) -> list[str]:
    """Why the ranks of a stuck job stand still: one sentence where the collectives tell, and a line per rank.

    `places` are those of ranks that said where they stand. Ranks that wait in the earliest collective hold the
    others up; a rank that has not begun it is the one they wait for.
    """
    waits = {rank: call for rank, place in places.items() for call in place.collectives if _is_stuck(call, place)}
    lines = [f"  rank {rank} {_doing(places[rank], waits.get(rank))}{_where(places[rank])}" for rank in sorted(places)]
    if not waits:
        return lines

    def missing_in(call: Collective) -> list[int]:
        members = call.members or range(ranks)
        return [rank for rank in members if _reached(places.get(rank), call) < call.number]

    def held_up_by_a_wait(call: Collective) -> bool:  # in another group: that one is the cause
        missing = missing_in(call)
        return bool(missing) and all(rank in waits for rank in missing)

    stuck = min(waits.values(), key=lambda call: (held_up_by_a_wait(call), call.number))
    there = {rank: call for rank, call in waits.items() if (call.group, call.number) == (stuck.group, stuck.number)}
    kinds = {(call.name, str(call.sizes)) for call in there.values()}
    missing = missing_in(stuck)
    if len(kinds) > 1:
        each = [f"rank {rank} began {_kind(call)}" for rank, call in there.items()]
        return [f"The ranks disagree on collective {stuck.number}: {_join(each)}.", *lines]
    since = _since(there, places)
    if missing:
        who = _join([f"rank {rank}" for rank in missing])
        at = "; ".join(_brackets(places[rank]) for rank in missing if rank in places)
        wait = "waits" if len(there) == 1 else "wait"
        others = f"{_ranks(list(there))} {wait} there since {since}{_where(places[min(there)])}"
        named = _named(stuck) + (f" of {_ranks(stuck.members)}" if 0 < len(stuck.members) < ranks else "")
        return [f"{who} never reached {named}{f' ({at})' if at else ''}; {others}.", *lines]
    if len(there) == len(stuck.members or range(ranks)):
        return [f"All ranks stand in {_named(stuck)} since {since}: a slow or a lost connection.", *lines]
    return lines


def script_line(place: Place) -> str | None:
    """`train.py:88`, the innermost line that is no library's; `None` where nothing is known."""
    for file, line, _ in reversed(place.frames):
        if os.path.isabs(file) and not file.startswith(_LIBRARIES):
            return f"{os.path.basename(file)}:{line}"
    return None


def _is_stuck(call: Collective, place: Place) -> bool:
    # A wait that has timed out, or that another rank's end broke off, is over, and is the one to explain.
    gave_up = place.error and is_consequence(place.error)
    return call.waiting or bool(gave_up and call.number == max(each.number for each in place.collectives))


def _reached(place: Place | None, stuck: Collective) -> int:
    calls = place.collectives if place else []
    return max((call.number for call in calls if call.group == stuck.group), default=0)


def _doing(place: Place, wait: Collective | None) -> str:
    if place.silent:
        return "does not answer, as in C code that holds Python's lock"
    return f"waits in {_named(wait)}" if wait else "is in no collective"


def _named(call: Collective) -> str:
    return f"{call.name.replace('_', '-')} {call.number}"


def _kind(call: Collective) -> str:
    shapes = ", ".join(str(tuple(size)) for size in call.sizes)
    return call.name.replace("_", "-") + (f" of {shapes}" if shapes else "")


def _brackets(place: Place) -> str:
    stage = place.stage and f"stage {place.stage}"
    step = None if place.step is None else f"step {place.step}"
    return ", ".join(part for part in (stage, step, script_line(place)) if part)


def _where(place: Place) -> str:
    brackets = _brackets(place)
    return f" ({brackets})" if brackets else ""


def _since(there: dict[int, Collective], places: dict[int, Place]) -> str:
    return format_seconds(max(places[rank].unix_seconds - call.began_unix_seconds for rank, call in there.items()))


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {_join([str(rank) for rank in sorted(ranks)])}"


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
