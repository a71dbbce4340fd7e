"""Runs an unedited script in this process, as rank 0 of a group of fake ranks, with a player standing in."""

import linecache
import runpy
import sys
import traceback
from pathlib import Path
from unittest.mock import patch

from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..contract import stand_in
from ..contract.errors import LabError, UsageError, first_line
from .fake import NO_VALUES, fake_ranks
from .player import Player


def run_script(script: str, argv: list[str], ranks: int, player: Player) -> None:
    """Run it to its end. Raises `UsageError` with one sentence where it fails, with the line that did."""

    def count(optimizer, _args, _options):
        if player.parameters is None:  # of a model that the script made without our weights
            player.parameters = sum(p.numel() for group in optimizer.param_groups for p in group["params"])

    counting = register_optimizer_step_pre_hook(count)
    paths = [str(Path(script).resolve().parent), *sys.path]
    try:
        with (
            fake_ranks(ranks),
            patch.object(stand_in, "playing", player),
            patch.object(sys, "argv", [script, *argv]),
            patch.object(sys, "path", paths),
        ):
            runpy.run_path(script, run_name="__main__")
    except LabError as error:
        raise UsageError(f"{_line(script, error)[0]}: {error}") from error
    except NO_VALUES as error:
        place, source = _line(script, error)
        raise UsageError(
            f"{place}: `{source}` needs a tensor's values, and a dry run has none; give numbers to record.log, "
            "or use `fsdp2-lab rehearse`."
        ) from error
    except SystemExit as error:
        if error.code not in (None, 0):
            raise UsageError(f"{script} ended itself with code {error.code!r:.80} while it was played.") from error
    except Exception as error:  # whatever the script raises; a real run may not
        place, source = _line(script, error)
        raise UsageError(
            f"{place}: `{source}` raised {type(error).__name__} ({first_line(error).rstrip('.'):.120}) while it was "
            "played without other ranks, and in a dry run without values; see whether `fsdp2-lab run` gets past it."
        ) from error
    finally:
        counting.remove()


def _line(script: str, error: BaseException) -> tuple[str, str]:
    """The script's own line that an error comes from: `path:number`, and its source."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == script]
    if not frames:
        return script, "the script"
    number = frames[-1].lineno or 0
    return f"{script}:{number}", linecache.getline(script, number).strip()[:120]
