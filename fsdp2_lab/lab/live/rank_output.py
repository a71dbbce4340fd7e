"""What a rank printed: the end of its logs as plain, short text that names no machine's folders."""

import re
import site
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ...contract import workspace
from ...contract.secrets import redact
from ...contract.untrusted import read_end

_READ_BYTES = 200_000  # a log may hold gigabytes; a progress bar fills many bytes of a line
_MOST_LINES = 100
_MOST_CHARACTERS = 20_000

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colour, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # titles, links
    r"|\x1b[ -/]*[0-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_NOT_TEXT = re.compile("\ufffd{4,}")

# What fsdp2_lab.rank prints for who runs a script by hand: the run shows it better.
_OWN_STEP = re.compile(r"step \d+(  loss \S+)?  \S+ (s|ms)")
_OWN_SUMMARY = re.compile(r"rank 0 of \d+ on .+, (measured|rehearsed|dry run).*")
_OWN_LAST = "  records of all ranks: "


def rank_output(run_dir: Path, rank: int, argv: Iterable[str] = ()) -> dict[str, str]:
    """The last 100 lines, at most 20,000 characters, of `stdout` and `stderr`; a stream that is empty is absent.

    Secrets of the environment and of `argv` are replaced by their names.
    """
    texts = {}
    for stream in ("stdout", "stderr"):
        try:
            text = tail(run_dir / "logs" / f"rank{rank}.{stream}", argv)
        except OSError:
            continue
        if text.strip():
            texts[stream] = text
    return texts


def tail(log: Path, argv: Iterable[str] = ()) -> str:
    """The end of a log as a terminal would show it, without our own lines; what was cut is said first.

    Raises `OSError` where there is no plain file.
    """
    size, read = read_end(log, _READ_BYTES)
    cut = size > len(read)
    text = read.decode("utf-8", errors="replace")
    if cut and "\n" in text:
        text = text.partition("\n")[2]  # the first line is half a line
    lines = _without_own([_as_shown(line) for line in _ESCAPES.sub("", text).split("\n")])
    while lines and not lines[-1].strip():
        lines.pop()
    while lines and not lines[0].strip():
        lines.pop(0)
    cut |= len(lines) > _MOST_LINES
    kept = without_machine_paths(redact("\n".join(lines[-_MOST_LINES:]), argv))
    if len(kept) > _MOST_CHARACTERS:
        cut, kept = True, kept[-_MOST_CHARACTERS:].partition("\n")[2] or kept[-_MOST_CHARACTERS:]
    said = f"… the end of {size:,} bytes in {without_machine_paths(str(log))}\n"
    return said + kept if cut and kept else kept


def without_machine_paths(text: str) -> str:
    """Text with paths in the project relative to it, in the installation under `site-packages`, at home under `~`."""
    shorter = {sys.prefix: "python", sys.base_prefix: "python"} | {f: "site-packages" for f in site.getsitepackages()}
    with suppress(OSError, RuntimeError):  # a home that nobody knows, a working directory that is gone
        shorter[str(Path.home())] = "~"
        shorter[str(workspace.root())] = "."
    for folder in sorted(shorter, key=len, reverse=True):
        if len(folder) > 1:  # the root folder is in every path
            within, alone = (rf"(?<![\w.~-]){re.escape(folder)}{end}" for end in ("/", r"(?![\w.-])"))
            text = re.sub(within, shorter[folder] + "/" if shorter[folder] != "." else "", text)
            text = re.sub(alone, shorter[folder], text)
    return text


def _as_shown(line: str) -> str:
    # A carriage return starts the line anew; the last state that says something is what stays on a screen.
    states = [state for state in line.split("\r") if state.strip()]
    return _NOT_TEXT.sub("\ufffd\ufffd\ufffd", _CONTROLS.sub("\ufffd", states[-1])).rstrip() if states else ""


def _without_own(lines: list[str]) -> list[str]:
    start = next((i for i, line in enumerate(lines) if _OWN_SUMMARY.fullmatch(line)), len(lines))
    end = next((i for i, line in enumerate(lines[start:], start) if line.startswith(_OWN_LAST)), None)
    if end is not None:
        lines = lines[:start] + lines[end + 1 :]
    return [line for line in lines if not _OWN_STEP.fullmatch(line)]
