"""From a few depths to any depth: each moment of a step grows by the same bytes per layer, which is checked.

A moment is known by its place: phase, FSDP's last mark, the module (the first layer, the last, one between, or
none), the operation, and the how many-th of its name there. The peak of a deep model is the highest of its moments,
not the extended peak of a shallow one: the peak may move from one moment to another as layers are added.
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

DEPTHS = (4, 5, 6)
_LAYER = re.compile(r"(?<=\.)\d+(?=\.|$)")


class NotAlike(Exception):
    """Layers that do not all cost the same; the model has to be played in full."""


@dataclass
class Peak:
    """The highest moment of a step: its bytes, where it is, and the bytes alive in it by kind."""

    peak_bytes: int
    place: str
    terms: dict[str, int]


def peak_of(log) -> Peak:
    """The highest moment of one step as it was played."""
    moment = max(log.moments, key=lambda moment: moment.live_bytes)
    return Peak(moment.live_bytes, _in_words(moment), log.terms_at(moment))


def extend(logs: list, layers: int) -> Peak:
    """The peak of one step with `layers` layers, from the same step played at each of `DEPTHS`.

    Raises `NotAlike` where a moment that could be the peak does not grow evenly.
    """
    tables = [_by_place(log, depth) for log, depth in zip(logs, DEPTHS, strict=True)]
    _join_uneven(tables)
    best, best_bytes, doubtful_bytes = None, -1, -1
    for place in tables[0]:
        sizes = [table[place].live_bytes for table in tables]
        extended, even = _line(sizes, layers)
        if even and extended > best_bytes:
            best, best_bytes = place, extended
        elif not even:
            doubtful_bytes = max(doubtful_bytes, extended)
    if best is None or doubtful_bytes >= best_bytes:
        raise NotAlike("its bytes do not grow evenly with depth")
    moments = [table[best] for table in tables]
    alive = [log.terms_at(moment) for log, moment in zip(logs, moments, strict=True)]
    terms = {}
    for kind in sorted(set().union(*alive)):
        terms[kind], even = _line([kinds.get(kind, 0) for kinds in alive], layers)
        if not even:
            raise NotAlike(f"its {kind.replace('_', ' ')} do not grow evenly with depth")
    return Peak(best_bytes, _in_words(moments[-1], layers), terms)


def _line(values: list[int], layers: int) -> tuple[int, bool]:
    """The value at `layers`, and whether the values given lie on a line; where not, a bound for it from above."""
    steps = [after - before for before, after in pairwise(values)]
    return values[-1] + max(steps) * (layers - DEPTHS[-1]), len(set(steps)) == 1


def _by_place(log, depth: int) -> dict[tuple, object]:
    """The highest moment at each place. A place between the first and the last layer stands for all of those."""
    table, counts, stretch = {}, {}, None
    for moment in log.moments:
        here = (moment.phase, moment.mark, moment.module)
        if here != stretch:
            stretch, counts = here, defaultdict(int)
        counts[moment.operation] += 1
        place = (moment.phase, moment.mark, _which(moment.module, depth), moment.operation, counts[moment.operation])
        if place not in table or table[place].live_bytes < moment.live_bytes:
            table[place] = moment
    return table


def _which(module: str, depth: int) -> str:
    found = _LAYER.search(module)
    if not found:
        return module
    layer = int(found[0])
    return _LAYER.sub({0: "first", depth - 1: "last"}.get(layer, "between"), module, count=1)


def _join_uneven(tables: list[dict]) -> None:
    """Where an operation runs once per layer's tensor, its n-th run is another's at another depth: keep the highest."""
    numbers = [defaultdict(set) for _ in tables]
    for table, found in zip(tables, numbers, strict=True):
        for *operation, number in table:
            found[tuple(operation)].add(number)
    for operation in set().union(*numbers):
        if any(found[operation] != numbers[0][operation] for found in numbers):
            for table, found in zip(tables, numbers, strict=True):
                moments = [table.pop((*operation, number)) for number in found[operation]]
                if not moments:
                    raise NotAlike("it does other things at other depths")
                table[(*operation, None)] = max(moments, key=lambda moment: moment.live_bytes)


def _in_words(moment, layers: int = DEPTHS[-1]) -> str:
    module, found = moment.module, _LAYER.search(moment.module)
    if found and int(found[0]) >= DEPTHS[-1] / 2:  # played near the end, so it stands for a layer as near to it
        module = _LAYER.sub(str(int(found[0]) + layers - DEPTHS[-1]), module, count=1)
    near = f" near {module}" if module else ""
    return f"{moment.phase}{near}, at {moment.operation.removeprefix('aten::')}"
