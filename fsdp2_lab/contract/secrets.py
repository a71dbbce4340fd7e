"""Tokens, keys and passwords of the environment and the command line, kept out of records and errors."""

import os
import re
import shlex
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

_FEWEST_LETTERS = 8  # a shorter value stands in ordinary words, too
_NAME = re.compile(
    r"(^|[_-])(token|key|key[_-]id|apikey|credentials?|pat)$|secret|passw(or)?d|passphrase", re.IGNORECASE
)


def redact(text: str, argv: Iterable[str] = ()) -> str:
    """The text with every secret's value replaced by its name in brackets, as in `[HF_TOKEN]`.

    A secret is the value of an environment variable, or of an option in `argv`, whose name says so: HF_TOKEN,
    AWS_SECRET_ACCESS_KEY, `--api-key`. Values under 8 letters are left alone.
    """
    return _replacer(_secrets(argv))(text)


def redact_json(value, argv: Iterable[str] = ()):
    """The same for every string of a JSON value; the value itself where there are no secrets."""
    found = _secrets(argv)
    return _walk(value, _replacer(found)) if found else value


def split_command(command: str) -> list[str]:
    """The words of a shell command; none where it is no command."""
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _secrets(argv: Iterable[str]) -> tuple[tuple[str, str], ...]:
    found = [(value, name) for name, value in os.environ.items() if _NAME.search(name)]
    option = None
    for word in argv:
        if option and not word.startswith("--"):
            found.append((word, option))
        name, equals, value = word.partition("=")
        option = name.lstrip("-") if name.startswith("-") and _NAME.search(name) else None
        if option and equals:
            found.append((value, option))
            option = None
    return tuple((value, name) for value, name in found if len(value) >= _FEWEST_LETTERS)


@lru_cache(maxsize=4)
def _replacer(secrets: tuple[tuple[str, str], ...]):
    if not secrets:
        return lambda text: text
    names = {written: f"[{name}]" for value, name in secrets for written in _ways_to_write(value)}
    pattern = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))
    return lambda text: pattern.sub(lambda match: names[match[0]], text)


def _ways_to_write(value: str) -> set[str]:
    # As it is, in a traceback, in a URL, and in a shell's quotes.
    return {value, repr(value)[1:-1], quote(value, safe=""), shlex.quote(value).strip("'")}


def _walk(value, replace):
    if isinstance(value, str):
        return replace(value)
    if isinstance(value, dict):
        return {_walk(key, replace): _walk(item, replace) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(item, replace) for item in value]
    return value
