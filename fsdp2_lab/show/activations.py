"""What waits between forward and backward, over the sequence length: measured beside the closed form."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..contract.errors import UsageError
from ..contract.units import format_bytes
from ..lab.runs import Run
from ..predict.trade import Trade, trade
from . import labels
from .canvas import canvas, title
from .memory_figures import unit_of
from .palette import BLUE, GREEN, GREY, ORANGE, VERMILION

_FORWARD = "forward"  # the stage that the closed form describes
_COLOURS = (VERMILION, BLUE, ORANGE, GREEN)
_KIB = 1024


def held_bytes(run: Run, stage: str | None = None) -> int:
    """Bytes that a stage left behind on rank 0; `stage` is `forward`, or the last of a run without one."""
    row = run.stage(stage or (_FORWARD if _FORWARD in run.stage_names else run.stage_names[-1]))[0]
    if row.bytes_after is None or row.bytes_before is None:
        raise UsageError(f"Stage {row.name!r} of {run.id} was not metered.")
    return row.bytes_after - row.bytes_before


def predicted_hold(run: Run) -> Trade | None:
    """The closed form of a run's stage `forward`; `None` for other runs, and for models that it does not know."""
    settings = run.records[0].settings
    with suppress(UsageError):
        if _FORWARD in run.stage_names:
            checkpointed = None if settings["checkpointing"] else 0
            device = "cuda" if "CUDA" in run.how else "cpu"
            same = {name: settings[name] for name in ("batch", "seq", "param_dtype", "compute_dtype", "reshard")}
            return trade(settings["model"], run.ranks, checkpointed, device=device, **same)
    return None


def held_table(runs: Mapping[str, Sequence[Run]]) -> pd.DataFrame:
    """Bytes between forward and backward on rank 0, a row a run: measured, predicted, and measured for each token.

    `runs` are labels to runs of several lengths. Raises `UsageError` for a run that was not metered.
    """
    rows = []
    for label, several in runs.items():
        for run in several:
            held, found = held_bytes(run), predicted_hold(run)
            told = (
                ("–", "–")
                if found is None
                else (format_bytes(found.held_bytes), f"{held / found.held_bytes - 1:+z.2%}")
            )
            rows.append(
                (label, _seq(run), format_bytes(held), *told, f"{held / _tokens(run) / _KIB:,.1f} KiB", run.how)
            )
    return pd.DataFrame(rows, columns=labels.HELD_COLUMNS).set_index(list(labels.HELD_COLUMNS[:2]))


def held_over_seq(runs: Mapping[str, Sequence[Run]]) -> Figure:
    """The same as a figure: points as measured and lines as predicted, in all on the left and for a token on the right.

    A label without a prediction has a dotted line through its points.
    """
    figure, (left, right) = canvas(2, height=3.4)
    flat = [run for several in runs.values() for run in several]
    unit, name = unit_of(max(map(held_bytes, flat)))
    for (label, several), colour in zip(runs.items(), _COLOURS, strict=False):
        _draw(left, label, several, colour, lambda run, size: size / unit)
        _draw(right, label, several, colour, lambda run, size: size / _tokens(run) / _KIB)
    for ax in (left, right):
        seqs = sorted({_seq(run) for run in flat})
        ax.set_xticks(seqs, [f"{seq:,}" if seq > seqs[-1] / 10 else "" for seq in seqs])
        ax.set_xlabel(labels.SEQ)
        ax.set_xlim(0, 1.06 * seqs[-1])
        ax.set_ylim(bottom=0)
    left.set_ylabel(name)
    right.set_ylabel(labels.KIB_A_TOKEN)
    handles = dict(zip(*reversed(left.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles, frameon=False, fontsize=9, ncols=4, loc="outside lower left")
    how = ", ".join(dict.fromkeys(run.how for run in flat))
    if told := {found.label for run in flat if (found := predicted_hold(run))}:
        how = labels.POINTS_AND_LINES.format(how, ", ".join(told))
    title(left, labels.HELD_TITLE, how)
    title(right, labels.HELD_TOKEN_TITLE, labels.AS_ON_THE_LEFT)
    return figure


def _draw(ax: Axes, label: str, runs: Sequence[Run], colour: str, scaled) -> None:
    runs = sorted(runs, key=_seq)
    seqs = [_seq(run) for run in runs]
    found = [predicted_hold(run) for run in runs]
    ax.plot(seqs, [scaled(run, held_bytes(run)) for run in runs], "o", color=colour, label=label)
    if all(found):
        lines = [scaled(run, one.held_bytes) for run, one in zip(runs, found, strict=True)]
        ax.plot(seqs, lines, color=colour, linewidth=1.2)
    else:
        ax.plot(seqs, [scaled(run, held_bytes(run)) for run in runs], ":", color=GREY, linewidth=1)


def _seq(run: Run) -> int:
    return run.records[0].settings["seq"]


def _tokens(run: Run) -> int:
    return run.records[0].settings["batch"] * _seq(run)
