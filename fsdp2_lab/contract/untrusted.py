"""Reading what others wrote: files bounded in size, JSON in depth and numbers, fields checked by their types."""

import json
import os
import stat
import types
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO, get_args, get_origin, get_type_hints

MOST_BYTES = 64 * 2**20
_MOST_DEPTH = 32
_MOST_DIGITS = 300  # what a float can hold; figures divide
_WHOLE_NUMBERS = range(-(2**63), 2**63)  # what a table's column can hold
_NOT_FINITE = ("nan", "inf", "-inf")


def read_text(path: Path, most_bytes: int = MOST_BYTES, follow: bool = False) -> str:
    """A file's text. Raises `OSError` or `ValueError` for a pipe, a folder, a file too large or no UTF-8, and for a
    symbolic link unless `follow`."""
    with _open_plain(path, follow) as file:
        data = file.read(most_bytes + 1)  # a size asked for beforehand may have grown
    if len(data) > most_bytes:
        raise ValueError(f"more than {most_bytes:,} bytes")
    return data.decode("utf-8")


def read_end(path: Path, most_bytes: int) -> tuple[int, bytes]:
    """A file's size and its last bytes, however long it is. Raises `OSError` for a pipe, a folder and a link."""
    with _open_plain(path, follow=False) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - most_bytes))
        return size, file.read(most_bytes)


def _open_plain(path: Path, follow: bool) -> BinaryIO:
    # A pipe that somebody put there must not be waited for.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    file = os.fdopen(os.open(path, flags), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError("no plain file")
    return file


def parse_json(text: str):
    """Strict JSON: no NaN, no name twice, no endless number. Raises `ValueError`, also for deep nests."""
    try:
        return json.loads(
            text, parse_constant=_no_constant, parse_int=_bounded_int, object_pairs_hook=_without_duplicates
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def check_plain(value, depth: int = 0):
    """A copy of a JSON value, with broken Unicode replaced. Raises `ValueError` for what JSON cannot bring back."""
    if depth > _MOST_DEPTH:
        raise ValueError(f"nested more than {_MOST_DEPTH} deep")
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {check_plain(key): check_plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [check_plain(item, depth + 1) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**_MOST_DIGITS:
        raise ValueError(f"a whole number of more than {_MOST_DIGITS} digits")
    return value


def build(kind: type, data, where: str = ""):
    """A dataclass from a JSON object, with every field of the type that the class declares.

    Understands `int`, `float` (also as `nan`, `inf`, `-inf`), `str`, `bool`, `dict`, `list[…]`, `dict[str, …]`,
    dataclasses, and any of them or `None`. Raises `ValueError` naming the field.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{where or 'the record'} is {_shown(data)}, expected an object")
    types_of, required = _fields(kind)
    if unknown := next((name for name in data if name not in types_of), None):
        raise ValueError(f"{where}unknown field {unknown[:40]!r}")
    if missing := next((name for name in required if name not in data), None):
        raise ValueError(f"{where}field {missing!r} is missing")
    return kind(**{name: _convert(value, types_of[name], where + name) for name, value in data.items()})


def _convert(value, kind, where: str):
    if isinstance(kind, types.UnionType):  # always a type or None
        if value is None:
            return None
        (kind,) = (member for member in get_args(kind) if member is not type(None))
    if kind is int and type(value) is int and value in _WHOLE_NUMBERS:
        return value
    if kind is float and (type(value) in (int, float) or value in _NOT_FINITE):
        return float(value)
    if kind is bool and type(value) is bool:
        return value
    if kind is str and type(value) is str:
        return check_plain(value)
    if (kind is dict and isinstance(value, dict)) or (kind is list and isinstance(value, list)):
        return check_plain(value)
    if is_dataclass(kind) and isinstance(value, dict):
        return build(kind, value, f"{where}.")
    if get_origin(kind) is list and isinstance(value, list):
        (item,) = get_args(kind)
        return [_convert(element, item, f"{where}[{place}]") for place, element in enumerate(value)]
    if get_origin(kind) is dict and isinstance(value, dict):
        item = get_args(kind)[1]
        return {check_plain(key): _convert(element, item, f"{where}.{key:.40}") for key, element in value.items()}
    raise ValueError(f"{where} is {_shown(value)}, expected {getattr(kind, '__name__', kind)}")


@cache
def _fields(kind: type) -> tuple[dict, list[str]]:
    required = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    return get_type_hints(kind), required


def _without_duplicates(pairs: list) -> dict:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _bounded_int(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a whole number of {len(digits)} digits")
    return int(digits)


def _no_constant(name: str):
    raise ValueError(f"{name} is no JSON")


def _shown(value) -> str:
    return f"{json.dumps(value) if value is None or isinstance(value, bool) else repr(value):.40}"
