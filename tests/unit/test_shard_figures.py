"""The figures of chapter 05: who holds which rows, and what ways of sharding cost; read back from what was drawn."""

import pytest
from matplotlib.colors import to_hex

from fsdp2_lab import show
from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.record import write_record
from fsdp2_lab.lab.runs import Run
from fsdp2_lab.show.palette import PINK, YELLOW, rank_colour
from fsdp2_lab.show.row_shards import rows_by_rank

MIB = 2**20
ROWS = {"model.embed_tokens.weight": 384, "model.norm.weight": 5, "lm_head.weight": 384}
ROWS |= {f"model.layers.{layer}.mlp.up_proj.weight": 704 for layer in range(12)}


@pytest.fixture
def noting(tmp_path, rank_record):
    """Makes a run whose ranks noted these values, a dict for each rank."""

    def make(*values: dict, name: str = "noted", **changes) -> Run:
        for rank, noted in enumerate(values):
            write_record(tmp_path / name, rank_record(rank, len(values), values=noted, **changes))
        return Run(tmp_path / name)

    return make


def sharded(noting, ranks: int, rows: dict[str, int] = ROWS) -> Run:
    held = {name: rows_by_rank(count, ranks) for name, count in rows.items()}
    shapes = [
        {name: [counts[rank]] + [256] * ("norm" not in name) for name, counts in held.items()} for rank in range(ranks)
    ]
    return noting(*({"shards": each} for each in shapes))


def bars(ax, place: int) -> list[tuple[str, float, float]]:
    """Colour, left end and width of what stands in one row; the padding is `padding`."""
    found = []
    for patch in ax.patches:
        if round(patch.get_y() + patch.get_height() / 2) == place:
            colour = (
                to_hex(patch.get_facecolor()).upper() if patch.get_fill() and patch.get_facecolor()[3] else "padding"
            )
            found.append((colour, patch.get_x(), patch.get_width()))
    return found


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 16])
def test_every_rank_has_its_rows_and_the_missing_ones_are_dashed(noting, ranks):
    figure = show.shards(sharded(noting, ranks))
    (ax,) = figure.axes
    names = [tick.get_text() for tick in ax.get_yticklabels()]
    assert names == ["embed_tokens", "norm", "lm_head", "mlp.up_proj ×12"]
    for place, total in enumerate((384, 5, 384, 704)):
        held = rows_by_rank(total, ranks)
        padded, drawn, left = held[0] * ranks, bars(ax, place), 0
        for rank, rows in enumerate(held):
            if rows:
                colour, start, width = drawn.pop(0)
                assert colour == rank_colour(rank).upper()
                assert (start, width) == (pytest.approx(left / padded), pytest.approx(rows / padded))
            left += rows
        missing = [width for colour, _, width in drawn if colour == "padding"]
        assert missing == ([pytest.approx(1 - total / padded)] if total < padded else [])


def test_rows_are_named_where_they_fit_and_shapes_are_the_whole(noting):
    (ax,) = show.shards(sharded(noting, 3)).axes
    words = {text.get_text() for text in ax.texts}
    assert {"0–127", "128–255", "256–383", "384 × 256", "704 × 256", "0–1", "2–3", "4", "5"} <= words
    assert "470–703" in words
    assert "measured (CPU)" in ax.get_title(loc="left")


def test_layers_of_two_lists_keep_their_whole_names(noting):
    (ax,) = show.shards(sharded(noting, 2, {"encoder.0.a.weight": 4, "decoder.0.a.weight": 4})).axes
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["encoder.*.a", "decoder.*.a"]


def test_the_legend_has_what_each_rank_holds(noting):
    figure = show.shards(sharded(noting, 2, {"lm_head.weight": 3}))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["rank 0: 512 numbers", "rank 1: 256 numbers"]
    assert len(show.shards(sharded(noting, 16)).legends[0].get_texts()) == 8


def test_layers_that_are_cut_otherwise_have_a_row_of_their_own(noting):
    shapes = {"h.0.c.weight": [4, 8], "h.1.c.weight": [4, 8], "h.2.c.weight": [6, 8]}
    (ax,) = show.shards(noting({"shards": shapes}, {"shards": shapes})).axes
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["c ×2", "c"]


def test_a_part_can_be_chosen_and_long_names_are_cut(noting):
    run = sharded(noting, 2, ROWS | {f"model.{'deeply.' * 9}weight": 8})
    (ax,) = show.shards(run, only="up_proj").axes
    assert len(ax.get_yticklabels()) == 1
    longest = max(len(tick.get_text()) for tick in show.shards(run).axes[0].get_yticklabels())
    assert longest == 34


def test_what_cannot_be_drawn_is_refused_in_one_sentence(noting, is_one_sentence):
    runs = [
        (sharded(noting, 2), "no such"),
        (noting({"shards": {"a": [2]}}, {"shards": {"b": [2]}}, name="differs"), ""),
        (noting({}, {}, name="none"), ""),
    ]
    for run, only in runs:
        with pytest.raises(UsageError) as caught:
            show.shards(run, only)
        assert is_one_sentence(str(caught.value)), str(caught.value)


@pytest.fixture
def costly(noting):
    counts = {"whole": (2, 1), "linears": (58, 29)}
    return {
        way: noting({"collectives": {"all_gather": gathers, "reduce_scatter": reduces}}, name=way)
        for way, (gathers, reduces) in counts.items()
    }


def test_the_table_of_collectives_has_a_row_a_run(costly):
    table = show.compare_costs(costly)
    assert list(table.index) == ["whole", "linears"]
    assert list(table.loc["linears"]) == [58, 29, "30.00 MiB", "2.00 s", "measured (CPU)"]


def test_collectives_peak_and_seconds_are_drawn_as_they_are(costly):
    counts, peak, seconds = show.costs(costly).axes
    widths = {(to_hex(bar.get_facecolor()).upper(), bar.get_width()) for bar in counts.patches}
    assert widths == {(YELLOW, 2), (PINK, 1), (YELLOW, 58), (PINK, 29)}
    assert [text.get_text().strip() for text in counts.texts] == ["2 + 1", "58 + 29"]
    assert [bar.get_width() for bar in peak.patches] == [30, 30]
    assert [bar.get_width() for bar in seconds.patches] == [2, 2]
    assert "counted" in counts.get_title(loc="left") and "measured (CPU)" in peak.get_title(loc="left")


def test_a_rank_alone_has_counted_nothing_and_is_drawn(noting, recwarn):
    alone = noting({"collectives": {"all_gather": 0, "reduce_scatter": 0}})
    counts, *_ = show.costs({"alone": alone}).axes
    assert [text.get_text().strip() for text in counts.texts] == ["0 + 0"] and not recwarn.list


@pytest.mark.parametrize("noted", [{}, {"collectives": {"all_gather": 2}}, {"collectives": [1]}, {"collectives": None}])
def test_a_run_without_counts_is_refused(noting, noted, is_one_sentence):
    for draw in (show.costs, show.compare_costs):
        with pytest.raises(UsageError) as caught:
            draw({"run": noting(noted)})
        assert is_one_sentence(str(caught.value))


def test_a_run_without_a_timed_step_is_refused(noting, is_one_sentence):
    with pytest.raises(UsageError, match="more than two steps") as caught:
        show.costs({"short": noting({"collectives": {"all_gather": 1, "reduce_scatter": 1}}, steps=[])})
    assert is_one_sentence(str(caught.value))
