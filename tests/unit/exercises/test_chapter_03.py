"""Chapter 03's exercises on every kind of answer."""

import pytest
from cases import assert_number, assert_repair, recorded

from fsdp2_lab.learn import q03a, q03b, q03c, q03d, q03e

MIB = 2**20


def test_the_sum_after_a_reduce_scatter(tmp_path):
    run = recorded(tmp_path, ranks=4, values={"reduce-scatter": {"before": [0.0] * 8, "after": [6.0, 6.0]}})
    assert_number(q03a, (run,), 6, {4: "added", 1.5: "mean", 5: "q03a.hint()"})


def test_local_ranks_begin_anew_on_each_host():
    assert_number(q03b, (), 5, {21: "among all 24", 2: "GROUP_RANK", 6: "count from 0"})


def test_who_holds_the_same_shard(tmp_path):
    groups = [{"shard": [0, 1], "replicate": [0, 2]}, {"shard": [0, 1], "replicate": [1, 3]}] * 2
    run = recorded(tmp_path, ranks=4, each=[{"groups": each} for each in groups])
    assert_number(q03c, (run,), 3, {0: "other half", 2: "second row"})


@pytest.mark.parametrize("ranks", [1, 3])
def test_an_odd_number_of_ranks_has_no_partner(tmp_path, ranks):
    groups = [{"groups": {"replicate": [rank], "shard": list(range(ranks))}} for rank in range(ranks)]
    run = recorded(tmp_path, ranks=ranks, each=groups)
    assert q03c.check(3, run).kind == "note"


def test_what_an_all_gather_sends(tmp_path):
    seen = {"whole_bytes": 16 * MIB, "sent_bytes": 12.02 * MIB}
    run = recorded(tmp_path / "four", ranks=4, values={"all-gather": seen})
    assert_number(q03d, (run,), 12, {4: "own piece", 16: "its own piece", 24: "all-reduce", 8: "q03d.hint()"})
    alone = recorded(tmp_path / "one", ranks=1, values={"all-gather": seen})
    assert q03d.check(12, alone).kind == "note"


def test_the_lonely_collective_is_mended(tmp_path):
    hung = recorded(tmp_path / "hung", ranks=3)
    half = recorded(tmp_path / "half", ranks=3, each=[{"total": 6.0}, {"total": 2.0}, {}])
    mended = recorded(tmp_path / "mended", ranks=3, values={"total": 6.0})
    assert_repair(q03e, (hung,), (mended,))
    assert "3 ranks" in q03e.check(hung).text and "2 ranks" in q03e.check(half).text
