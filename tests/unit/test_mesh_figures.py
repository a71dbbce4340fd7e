"""Meshes, collectives and what they send, drawn and tabled from fabricated records."""

import pytest
from cases import recorded

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.show import collectives, mesh_layout, noted, noted_rows, wire
from fsdp2_lab.show.palette import PALE, rank_colour

MIB = 2**20


def _colours(ax) -> list[str]:
    return [
        "#{:02x}{:02x}{:02x}".format(*(round(255 * part) for part in bar.get_facecolor()[:3])) for bar in ax.patches
    ]


def test_a_mesh_has_a_tile_a_rank_and_a_colour_a_shard(tmp_path):
    run = recorded(tmp_path, ranks=6, each=[{"place": [rank // 3, rank % 3]} for rank in range(6)])
    (ax,) = mesh_layout(run).axes
    assert _colours(ax) == [rank_colour(rank % 3).lower() for rank in range(6)]
    assert [text.get_text() for text in ax.texts] == [f"rank {rank}" for rank in range(6)]
    assert "2 × 3" in ax.get_title(loc="left") and "measured (CPU)" in ax.get_title(loc="left")


def test_a_place_has_two_numbers(tmp_path, is_one_sentence):
    run = recorded(tmp_path, values={"place": [0]})
    with pytest.raises(UsageError) as caught:
        mesh_layout(run)
    assert is_one_sentence(str(caught.value))


def test_a_sum_is_grey_and_everything_else_has_its_ranks_colour(tmp_path):
    each = [
        {
            "all-gather": {"before": [float(rank)], "after": [0.0, 1.0]},
            "reduce-scatter": {"before": [rank + 2.0] * 2, "after": [5.0]},
        }
        for rank in range(2)
    ]
    figure = collectives(recorded(tmp_path, each=each), ["all-gather", "reduce-scatter"])
    gathered, reduced = _colours(figure.axes[1]), _colours(figure.axes[3])
    assert gathered == [rank_colour(0).lower(), rank_colour(1).lower()] * 2
    assert reduced == [PALE.lower()] * 2


def test_a_rings_bytes_stand_beside_the_counted_ones(tmp_path):
    seen = {"whole_bytes": 16 * MIB, "sent_bytes": 12 * MIB}
    names = ("broadcast", "all-gather", "reduce-scatter", "all-reduce", "all-to-all")
    table = wire(recorded(tmp_path, ranks=4, values=dict.fromkeys(names, seen)))
    assert table["MiB, predicted"].tolist() == [12, 12, 12, 24, 12]
    assert table["MiB, measured (CPU), gloo"].tolist() == [12] * 5


def test_what_ranks_noted_is_tabled(tmp_path):
    run = recorded(tmp_path, each=[{"places": {"a": {"x": 1}}, "flat": {"a": rank}} for rank in range(2)])
    assert noted(run, "flat").loc["a"].tolist() == [0, 1] and list(noted(run, "flat")) == ["rank 0", "rank 1"]
    assert noted_rows(run, "places").loc["a", "x"] == 1
