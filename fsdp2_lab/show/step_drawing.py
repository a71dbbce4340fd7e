"""Draws a step: on the left every unit's rows, beside them its time line, and below the memory."""

from itertools import pairwise

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Polygon, Rectangle
from matplotlib.transforms import blended_transform_factory

from ..contract.sharded import Span
from ..contract.units import format_bytes
from . import labels
from .memory_figures import unit_of
from .palette import BLUE, PALE, RANKS, rank_colour
from .step_lanes import Lane, StepLanes, is_placed, share_of

_WIDTH, _LANE, _CURVE = 10.0, 0.4, 1.5  # inches
_TOP, _BOTTOM = 0.12, 0.88  # of a lane
_SMALLEST = 0.004  # of the time axis: what is shorter is drawn this long
_GATHER = {"facecolor": "white", "edgecolor": "#333333", "hatch": "//////", "linewidth": 0.6}  # no rank's colour
_WAITING, _REDUCE = {"color": PALE, "linewidth": 0}, {"color": "black", "linewidth": 0}
_MANY = "#555555"  # units that share a lane
_NAMED = ("forward", "loss", "backward", "optimizer")


def draw_step(found: StepLanes, ranks: int, title: str, how: str) -> Figure:
    heights = [1.0 if len(lane.units) == 1 else 2.0 for lane in found.lanes]
    lanes_height = _LANE * max(3.0, sum(heights))
    figure = plt.figure(figsize=(_WIDTH, lanes_height + _CURVE + 1.3), dpi=110, layout="constrained")
    plt.close(figure)  # the cell shows what it returns; pyplot would show it a second time
    grid = figure.add_gridspec(2, 2, width_ratios=(2.1, 7.9), height_ratios=(lanes_height, _CURVE))
    held, lanes = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[0, 1])
    key, curve = figure.add_subplot(grid[1, 0]), figure.add_subplot(grid[1, 1], sharex=lanes)
    begin, end = window_of(found)
    top, places = 0.0, []
    for lane, height in zip(found.lanes, heights, strict=True):
        _draw_rows(held, lane, top, height)
        _draw_lane(lanes, lane, top, height, found.record.rank, (begin, end))
        places.append(top + height / 2)
        top += height
    for ax in (held, lanes):
        ax.set_ylim(top, 0)
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0)
    names = held.set_yticks(places, [lane.label for lane in found.lanes], fontsize=9)
    for name in names:
        name.label1.set_parse_math(False)
    held.set(xlim=(0, 1), xticks=[])
    held.set_title(labels.WHO_ROWS, loc="left", fontsize=9)
    lanes.set(xlim=(begin, end), yticks=[])
    lanes.tick_params(labelbottom=False)
    _draw_phases(lanes, curve, found.row.phases, (begin, end))
    _draw_memory(lanes, curve, found)
    curve.set_xlabel(labels.CURVE_SECONDS if not found.row.timed else labels.SECONDS)
    figure.suptitle(f"{title}\n{labels.WHO_READ}\n{how}", x=0.01, ha="left", fontsize=10, parse_math=False)
    _draw_key(key, ranks)
    return figure


def _draw_key(ax: Axes, ranks: int) -> None:
    handles = [Patch(color=rank_colour(rank), label=labels.RANK.format(rank)) for rank in range(min(ranks, len(RANKS)))]
    marks = {labels.WHO_GATHER: _GATHER, labels.WHO_WAITING: _WAITING, labels.WHO_REDUCE: _REDUCE}
    handles += [Patch(**look, label=name) for name, look in marks.items()]
    legend = ax.legend(
        handles=handles,
        ncols=1 if len(handles) < 8 else 2,
        loc="upper left",
        bbox_to_anchor=(0.005, 1.0),
        bbox_transform=blended_transform_factory(ax.figure.transFigure, ax.transAxes),
        frameon=False,
        fontsize=9,
    )
    legend.set_in_layout(False)
    ax.axis("off")


def window_of(found: StepLanes) -> tuple[float, float]:
    """The part of the step that is drawn: from its first span to where the optimizer ends."""
    spans = [span for lane in found.lanes for spans in lane.spans.values() for span in spans]
    begin = min((span.start_seconds for span in spans), default=0.0)
    last = max((span.end_seconds for span in spans), default=found.end_seconds)
    end = max(last, found.row.phases.get("after the optimizer", found.end_seconds))
    end = min(end, found.end_seconds) if end > begin else begin + 1.0
    margin = 0.01 * (end - begin)
    return max(0.0, begin - margin), end + margin


def _draw_rows(ax: Axes, lane: Lane, top: float, height: float) -> None:
    """The unit's parameters side by side, each cut into the rows of every rank, row 0 on top."""
    y, size = top + _TOP, height - _TOP - (1 - _BOTTOM)
    tensors = list(zip(*lane.shards.values(), strict=True))
    if not tensors:
        for rank, (first, share) in lane.bands.items():
            ax.add_patch(Rectangle((0, y + size * first), 1, size * share, color=rank_colour(rank), linewidth=0))
        return
    widths = [max(0.0, shards[0].whole_bytes) ** 0.5 for shards in tensors]
    least = 0.02 * (sum(widths) or 1.0)
    widths = [max(width, least) for width in widths]
    x, gap = 0.0, 0.3 / (len(tensors) + 10)
    for shards, width in zip(tensors, widths, strict=True):
        width *= (1 - gap * (len(tensors) - 1)) / sum(widths)
        ax.add_patch(Rectangle((x, y), width, size, color=PALE, linewidth=0))
        for rank, shard in reversed([*zip(lane.shards, shards, strict=True)]):  # of replicas the first is on top
            if is_placed(shard):
                first, share = shard.first_row / shard.global_rows, share_of(shard)
                ax.add_patch(Rectangle((x, y + size * first), width, size * share, color=rank_colour(rank), lw=0))
        x += width + gap


def _draw_lane(ax: Axes, lane: Lane, top: float, height: float, rank: int, window: tuple[float, float]) -> None:
    y, size, length = top + _TOP, height - _TOP - (1 - _BOTTOM), window[1] - window[0]
    bands = {other: (y + size * first, size * share) for other, (first, share) in lane.bands.items() if share}
    own = bands.get(rank, (y, 0.0))
    if len(lane.units) > 1:
        _draw_many(ax, lane, (y, size), rank, window)
        return
    ax.add_patch(Rectangle((window[0], own[0]), length, own[1], color=rank_colour(rank), lw=0, zorder=2))
    gathered = lane.of_kind("gathered")
    farthest_first = sorted(bands, key=lambda other: -abs(other - rank))  # of replicas the nearest is on top
    for span in gathered:
        for other in farthest_first:
            ax.add_patch(_bar(span, *bands[other], length, color=rank_colour(other)))
    for span in lane.of_kind("all_gather"):
        # Until it is copied out, what has come waits in a buffer.
        copied = [whole.start_seconds for whole in gathered if whole.start_seconds >= span.end_seconds]
        waits = min(copied, default=span.end_seconds) - span.end_seconds
        ax.add_patch(Rectangle((span.end_seconds, y), waits, size, **_WAITING))
        _draw_fan(ax, span.start_seconds, _length(span, length), own, (y, size), _GATHER)
    for span in lane.of_kind("reduce_scatter"):
        width = _length(span, length)
        _draw_fan(ax, span.start_seconds + width, -width, own, (y, size), _REDUCE)


def _draw_many(ax: Axes, lane: Lane, place: tuple[float, float], rank: int, window: tuple[float, float]) -> None:
    """Units that share a lane, one below the other: only when each is whole."""
    (y, size), length = place, window[1] - window[0]
    ax.add_patch(Rectangle((window[0], y), length, size, color=rank_colour(rank), alpha=0.2, lw=0))
    each = size / len(lane.units)
    for number, spans in enumerate(lane.spans.values()):
        for span in spans:
            if span.kind == "gathered":
                ax.add_patch(_bar(span, y + each * number, max(each, 0.04), length, color=_MANY))


def _bar(span: Span, y: float, height: float, length: float, **look) -> Rectangle:
    return Rectangle((span.start_seconds, y), _length(span, length), height, lw=0, **look)


def _length(span: Span, length: float) -> float:
    return max(span.end_seconds - span.start_seconds, _SMALLEST * length)


def _draw_fan(ax: Axes, x: float, width: float, own: tuple, whole: tuple, look: dict) -> None:
    """From the rank's own rows to all of them, or with a negative width back: what a collective does."""
    (y, size), (all_y, all_size) = own, whole
    corners = [(x, y), (x + width, all_y), (x + width, all_y + all_size), (x, y + size)]
    ax.add_patch(Polygon(corners, zorder=3, **look))


def _draw_phases(lanes: Axes, curve: Axes, phases: dict[str, float], window: tuple[float, float]) -> None:
    begun = [*sorted(phases.items(), key=lambda phase: phase[1]), ("", window[1])]
    for (phase, began), (_, ended) in pairwise(begun):
        began, ended = max(began, window[0]), min(ended, window[1])
        if not window[0] <= began <= ended:
            continue
        if began > window[0]:
            for ax in (lanes, curve):
                ax.axvline(began, color="black", linewidth=0.7, linestyle=":", zorder=0)
        is_last = phase == _NAMED[-1]  # short, with room on its left
        if phase in _NAMED and (is_last or ended - began > 0.1 * (window[1] - window[0])):
            x, side = (ended, "right") if is_last else ((began + ended) / 2, "center")
            lanes.text(x, 1.01, phase, transform=lanes.get_xaxis_transform(), ha=side, fontsize=9)


def _draw_memory(lanes: Axes, curve: Axes, found: StepLanes) -> None:
    curve.spines[["top", "right"]].set_visible(False)
    points = [point for point in found.row.curve if 0 <= point.seconds <= found.end_seconds and point.live_bytes >= 0]
    if not points:
        return
    unit, name = unit_of(max(point.live_bytes for point in points))
    seconds, live = [point.seconds for point in points], [point.live_bytes / unit for point in points]
    curve.fill_between(seconds, live, color=BLUE, alpha=0.25, step="mid", linewidth=0)
    curve.plot(seconds, live, color=BLUE, linewidth=1.4, drawstyle="steps-mid")
    curve.set(ylim=(0, 1.3 * max(*live, 1e-9)), ylabel=name)
    peak = max(points, key=lambda point: point.live_bytes)
    for ax in (lanes, curve):
        ax.axvline(peak.seconds, color="black", linewidth=0.8, linestyle="--", zorder=4)
    begin, end = curve.get_xlim()
    is_late = peak.seconds > begin + 0.8 * (end - begin)  # no room on its right
    curve.annotate(
        labels.WHO_PEAK.format(format_bytes(peak.live_bytes)),
        (peak.seconds, peak.live_bytes / unit),
        xytext=(-4 if is_late else 4, 4),
        textcoords="offset points",
        ha="right" if is_late else "left",
        fontsize=9,
        bbox={"facecolor": "white", "linewidth": 0, "pad": 1},
    )
