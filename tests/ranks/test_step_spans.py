"""The spans and rows in a record are what FSDP2 did: as torch itself counts, in the model's order, of its bytes."""

import json

import pytest

FIRST_BLOCK = "blocks.0"
CASES = {
    "plain": {},
    "kept after forward": {"reshard": False},
    "checkpointing": {"checkpointing": True},
    "checkpointing, kept": {"checkpointing": True, "reshard": False},
    "tied": {"tied": True},
    "a unit of two modules": {"grouped": True},
    "two passes a step": {"passes": 2},
    "nothing sharded": {"shard": False},
}
RANKS = (1, 2, 3)  # 50 rows do not divide by 3


@pytest.fixture(scope="module", params=RANKS, ids=lambda ranks: f"{ranks} ranks")
def launched(request, project, scripts):
    argv = {name: [json.dumps(asked)] for name, asked in CASES.items()}
    return request.param, project.run_several(scripts / "units.py", argv, request.param)


def count(row, kind, unit=None):
    return len([span for span in row.spans if span.kind == kind and unit in (None, span.unit)])


@pytest.mark.parametrize("case", [case for case in CASES if case != "nothing sharded"])
def test_spans_are_what_torch_counts_in_the_models_order(case, launched):
    ranks, records = launched
    for record in records[case]:
        counted = record.steps[0].values
        assert ranks == 1 or counted["all_gathers"]
        for row in record.steps[:2]:
            assert count(row, "all_gather") == counted["all_gathers"]
            assert count(row, "reduce_scatter") == counted["reduce_scatters"]
            assert [span.start_seconds for span in row.spans] == sorted(span.start_seconds for span in row.spans)
            assert all(0 <= span.start_seconds <= span.end_seconds for span in row.spans)
            blocks = [span.unit for span in row.spans if span.kind == "forward" and span.unit.startswith("blocks.")]
            assert blocks == record.values["modules"] * CASES[case].get("passes", 1)
            back = [span.unit for span in row.spans if span.kind == "backward" and span.unit.startswith("blocks.")]
            assert back == list(reversed(record.values["modules"])) * CASES[case].get("passes", 1)
        assert not record.steps[2].spans and record.steps[2].timed
        names = [unit.name for unit in record.units]
        assert [name for name in names if name.startswith("blocks.")] == record.values["modules"]
        assert {span.unit for span in record.steps[1].spans} == set(names)


def test_a_unit_that_is_kept_is_gathered_once_and_another_twice(launched):
    _, records = launched
    for record in records["plain"]:
        assert count(record.steps[1], "gathered", FIRST_BLOCK) == 2
    for case in ("kept after forward", "checkpointing, kept"):
        for record in records[case]:
            for unit in record.units:
                assert count(record.steps[1], "gathered", unit.name) == 1
                (held,) = [s for s in record.steps[1].spans if s.kind == "gathered" and s.unit == unit.name]
                (back,) = [s for s in record.steps[1].spans if s.kind == "backward" and s.unit == unit.name]
                assert held.start_seconds < back.start_seconds and held.end_seconds >= back.end_seconds


@pytest.mark.parametrize("case", [case for case in CASES if case != "nothing sharded"])
def test_gathered_bytes_are_the_units_and_those_of_the_terms_at_the_peak(case, launched):
    ranks, records = launched
    for record in records[case]:
        whole = {unit.name: unit.whole_bytes for unit in record.units}
        row = record.steps[1]
        gathered = [span for span in row.spans if span.kind == "gathered"]
        assert all(span.size_bytes >= whole[span.unit] for span in gathered)  # rows are padded to divide
        assert all(span.size_bytes == whole[span.unit] for span in gathered) or ranks == 3
        peak = max(row.curve, key=lambda point: point.live_bytes).seconds
        alive = [span for span in gathered if span.start_seconds - 1e-6 <= peak < span.end_seconds - 1e-6]
        if ranks > 1:  # one rank's are no term of their own
            assert sum(span.size_bytes for span in alive) == row.terms.get("unsharded_parameters", 0)


def test_the_ranks_rows_follow_each_other_and_are_all_of_them(launched):
    ranks, records = launched
    for case in CASES:
        by_rank = [{shard.name: shard for unit in record.units for shard in unit.shards} for record in records[case]]
        if case == "nothing sharded":
            assert by_rank == [{}] * ranks
            continue
        assert len(by_rank[0]) == 4 * 3 + (3 if case == "tied" else 4)
        for name, first in by_rank[0].items():
            place = 0
            for shards in by_rank:
                assert shards[name].first_row == place, name
                place += shards[name].rows
            assert place == first.global_rows, name
        for units in zip(*(record.units for record in records[case]), strict=True):
            assert sum(unit.held_bytes for unit in units) == units[0].whole_bytes


def test_a_step_that_shards_nothing_has_no_spans(launched):
    for record in launched[1]["nothing sharded"]:
        assert record.status == "ok" and not record.units
        assert not [span for row in record.steps for span in row.spans]
        assert record.steps[1].terms and record.steps[1].curve
