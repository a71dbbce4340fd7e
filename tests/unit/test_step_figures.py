"""The picture of a step, over fabricated records: many ranks, many units, and records that nobody can trust."""

import json
import math
import warnings

import pytest
from IPython.core.formatters import DisplayFormatter
from step_records import MIB, sharded_run, spans, step_row, units

from fsdp2_lab import show
from fsdp2_lab.cli import main
from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.record import MEASURED_CUDA, Point, rank_file, read_record, write_record
from fsdp2_lab.contract.sharded import Shard, Span, UnitRow
from fsdp2_lab.lab.runs import Run
from fsdp2_lab.show.step_lanes import MOST_LANES, lanes_of


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def is_drawn(picture) -> bool:
    return picture._repr_png_().startswith(b"\x89PNG") and len(repr(picture)) > 100


@pytest.mark.parametrize("ranks", [1, 2, 8])
@pytest.mark.parametrize("count", [1, 2, 5, 80])
def test_any_number_of_ranks_and_units_is_drawn(ranks, count, tmp_path):
    picture = show.who_holds_what(sharded_run(tmp_path, ranks, count), rank=ranks - 1)
    assert is_drawn(picture)
    width, height = picture.figure.get_size_inches()
    assert width == 10 and 2.5 < height < 8
    assert len(picture.units) == min(count, 8) and len(picture.rows.columns) == 2 + ranks


def test_the_table_says_what_the_picture_shows(tmp_path):
    picture = show.who_holds_what(sharded_run(tmp_path, 2, 5))
    assert repr(picture).startswith(
        "who holds what, and when: step 1, seen by rank 0 of 2\nmeasured (CPU), times slowed"
    )
    root, first, *_ = picture.units.itertuples(index=False)
    assert tuple(root) == ("root", "67.00 MiB", "34.00 MiB", "1", "86%", "1", "1")
    assert tuple(first)[:4] == ("layers.0", "67.00 MiB", "34.00 MiB", "2")
    assert tuple(first)[5:] == ("2", "1")
    assert list(picture.rows.itertuples(index=False, name=None))[:2] == [
        ("root.weight", "64", "0–31", "32–63"),
        ("root.bias", "3", "0–1", "2–2"),
    ]


def test_a_notebook_shows_the_picture_and_a_terminal_the_table(tmp_path):
    picture = show.who_holds_what(sharded_run(tmp_path))
    shown, _ = DisplayFormatter().format(picture)
    assert set(shown) == {"image/png", "text/plain"} and shown["text/plain"] == repr(picture)


def test_times_of_a_gpu_are_said_to_be_the_hosts(tmp_path):
    run = sharded_run(tmp_path)
    run.records[0].how = MEASURED_CUDA
    assert repr(show.who_holds_what(run)).splitlines()[1].endswith("the host, which runs ahead of the GPU")


def test_the_middle_units_of_a_deep_model_share_a_lane(tmp_path):
    found = lanes_of(sharded_run(tmp_path, 2, 80), None, 0)
    assert [lane.label for lane in found.lanes] == [
        "root",
        "layers.0",
        "layers.1",
        "layers.2",
        "layers.3 … 75, alike",
        "layers.76",
        "layers.77",
        "layers.78",
    ]
    assert sum(len(lane.units) for lane in found.lanes) == 80 > MOST_LANES


def test_middle_units_of_several_sizes_are_not_called_alike(tmp_path):
    run = sharded_run(tmp_path, 1, 12)
    run.records[0].units[6].whole_bytes += 1
    assert lanes_of(run, 1, 0).lanes[4].label == "5 units between"


def test_a_rank_has_its_part_of_every_band_and_none_where_it_holds_no_row(tmp_path):
    for lane in lanes_of(sharded_run(tmp_path, 8, 2), 1, 0).lanes:
        assert lane.bands == {rank: (rank / 8, 1 / 8) for rank in range(8)}  # of the weight's 64 rows
        lane.shards = {}
        starts, shares = zip(*lane.bands.values(), strict=True)
        assert list(starts) == sorted(starts) and sum(shares) == pytest.approx(1.0)
        assert shares[0] > shares[7] > 0  # of the bias's three rows only the first three ranks have one


def test_ranks_that_hold_the_same_rows_have_the_same_band(tmp_path):
    run = sharded_run(tmp_path, 4, 2)
    for record in run.records:  # two groups of two, as hybrid sharding makes them
        record.units = units(2, record.rank % 2, 2)
    bands = lanes_of(run, 1, 0).lanes[0].bands
    assert bands == {0: (0.0, 0.5), 1: (0.5, 0.5), 2: (0.0, 0.5), 3: (0.5, 0.5)}
    assert is_drawn(show.who_holds_what(run, rank=3))


def test_a_unit_that_a_record_does_not_list_is_drawn_like_its_kind(tmp_path):
    run = sharded_run(tmp_path, 2, 5)
    for record in run.records:
        for unit in record.units[2:]:
            unit.shards = []
    lanes = lanes_of(run, 1, 0).lanes
    assert [[shard.name for shard in lane.shards[0]] for lane in lanes[2:]] == [
        ["root.weight", "root.bias"]  # as large, with as many tensors
    ] * 3
    assert is_drawn(show.who_holds_what(run))


def test_spans_without_units_and_units_without_spans_are_drawn(tmp_path):
    run = sharded_run(tmp_path, 2, 3)
    for record in run.records:
        record.units = [UnitRow("layers.7", 1, MIB, MIB // 2)]
    picture = show.who_holds_what(run)
    assert is_drawn(picture) and set(picture.units["held"]) == {"0.50 MiB", "–"}


def test_the_latest_metered_step_is_shown_and_another_on_demand(tmp_path):
    run = sharded_run(tmp_path, 2, 3)
    for record in run.records:
        first = step_row([unit.name for unit in record.units], step=0)
        record.steps = [first, *record.steps, step_row(["root"], step=2, spans=[])]
    assert "step 1," in repr(show.who_holds_what(run)) and "step 0," in repr(show.who_holds_what(run, step=0))


@pytest.mark.parametrize(("step", "rank"), [(2, 0), (None, 5), (None, -1), (-1, 0)])
def test_a_step_without_spans_is_refused_in_one_sentence(step, rank, tmp_path, is_one_sentence):
    with pytest.raises(UsageError, match="has no spans") as caught:
        show.who_holds_what(sharded_run(tmp_path), step, rank)
    assert is_one_sentence(str(caught.value))


def test_a_record_without_spans_as_earlier_versions_wrote_is_read_and_refused(tmp_path, rank_record):
    write_record(tmp_path, rank_record())
    data = json.loads(rank_file(tmp_path, 0).read_text())
    del data["units"]
    for step in data["steps"]:
        del step["spans"]
    rank_file(tmp_path, 0).write_text(json.dumps(data))
    assert read_record(rank_file(tmp_path, 0)) == rank_record()
    with pytest.raises(UsageError, match="has no spans"):
        show.who_holds_what(Run(tmp_path))


def test_the_command_writes_the_figure_and_prints_the_table(home, capsys):
    sharded_run(home / "runs" / "own-1", 2, 5)
    assert main(["runs", "own-1", "--figure", str(home / "step.svg")]) == 0
    assert "<svg" in (home / "step.svg").read_text()
    assert "layers.3" in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv", [["--figure", "a.png"], ["own-1", "--figure", "a.xyz"], ["own-1", "--figure", "no/a.png"]]
)
def test_a_figure_that_cannot_be_written_is_one_sentence(argv, home, capsys, is_one_sentence):
    sharded_run(home / "runs" / "own-1", 2, 5)
    assert main(["runs", *argv]) == 2
    assert is_one_sentence(capsys.readouterr().err.strip())


NAMES = ["$x$", r"\frac{", "<b>", "\n\n", "\u4e2d" * 300, ".", "", "a" * 5000, "\x1b[31m"]
FORGED = {
    "names that are markup": {"units": [UnitRow(name, 1, 5, 5, [Shard(name, 0, 1, 1, 5)]) for name in NAMES]},
    "negative sizes": {"units": [UnitRow("root", -3, -5, -5, [Shard("w", -1, -2, -3, -4, -5)])]},
    "rows beyond the parameter": {"units": [UnitRow("root", 1, 5, 5, [Shard("w", 7, 2**62, 1, 2**62)])]},
    "no rows": {"units": [UnitRow("root", 1, 0, 0, [Shard("w", None, 0, 0, 0)])]},
    "a unit twice": {"units": units(2, 0, 2) * 2},
    "spans that end before they begin": {"spans": [Span("gathered", "root", 2.0, 1.0, 3)]},
    "spans that never end": {"spans": [Span("gathered", "root", 0.0, math.inf), Span("all_gather", "a", math.nan, 1)]},
    "spans of no length": {"spans": [Span("gathered", "root", 0.0, 0.0, -1), Span("reduce_scatter", "root", 0, 0)]},
    "spans long after the step": {"spans": [Span("gathered", "root", 1e300, 1.7e308, 1)]},
    "spans of an unknown kind": {"spans": [Span("__class__", "root", 0.0, 1.0)]},
    "more spans than a record has": {"spans": [Span("gathered", f"u{n % 9}", n, n + 1.0, 1) for n in range(6000)]},
    "more units than a record has": {"spans": [Span("gathered", f"u{n}", n, n + 1.0, 1) for n in range(6000)]},
    "a curve of nothing": {"curve": [Point(0.0, 0), Point(math.nan, 5), Point(1.0, -4), Point(-1.0, 3)]},
    "no curve": {"curve": []},
    "phases out of order": {"phases": {"optimizer": -5.0, "forward": 9e99, "backward": math.nan, "$": 1.0}},
    "another way of measuring": {"how": "$\\frac{\n" * 50},
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_forged_record_is_drawn_as_far_as_it_makes_sense(forged, tmp_path):
    run = sharded_run(tmp_path, 2, 3)
    for record in run.records:
        for name, value in forged.items():
            setattr(record if name in ("units", "how") else record.steps[0], name, value)
        write_record(tmp_path, record)
    assert is_drawn(show.who_holds_what(Run(tmp_path)))


def test_records_of_a_run_that_was_cut_short_are_drawn(tmp_path):
    run = sharded_run(tmp_path, 4, 3)
    for rank in (0, 2):
        rank_file(tmp_path, rank).unlink()
    picture = show.who_holds_what(Run(tmp_path), rank=3)
    assert is_drawn(picture) and list(picture.rows.columns)[2:] == ["rank 1", "rank 3"]
    assert run.ranks == 4


def test_fabricated_spans_have_the_shape_of_real_ones():
    kept, freed = spans(["root", "a", "b"], 5, reshard=False), spans(["root", "a", "b"], 5)
    assert len([s for s in kept if s.kind == "gathered"]) == 3 and len([s for s in freed if s.kind == "gathered"]) == 5
