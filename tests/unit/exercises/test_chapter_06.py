"""Chapter 06's exercises on every kind of answer."""

import pytest
from cases import assert_choice, assert_number, assert_repair, recorded

from fsdp2_lab.contract.record import StageRow
from fsdp2_lab.contract.units import MIB
from fsdp2_lab.learn import q06a, q06b, q06c, q06d, q06e

TIED, UNTIED = 3_049_728, 3_148_032


def test_what_loading_costs_rank_0(tmp_path):
    stages = [StageRow("load", bytes_after=6 * MIB, peak_bytes=18 * MIB)]
    run = recorded(tmp_path / "run", stages=stages, values={"parameters": 3_145_728})
    assert_number(q06a, (run,), 18.0, {12.0: "copy alone", 6.0: "other rank", 24.0: "two whole models"})
    on_gpus = recorded(tmp_path / "gpus", stages=stages, values={"parameters": 3_145_728}, device="cuda:0")
    assert q06a.check(18.0, on_gpus).kind == "note"


@pytest.mark.parametrize(("after", "right"), [(2.13, "same"), (2.14, "higher")])
def test_what_the_loss_says_of_a_lost_row(tmp_path, after, right):
    spoiled = [{"loss": after, "differing": []}, {"loss": after, "differing": ["model.embed_tokens.weight"]}]
    each = [{"loaded": {"loss": 2.13, "differing": []}, "spoiled": judged} for judged in spoiled]
    assert_choice(q06b, (recorded(tmp_path / "run", each=each),), right)
    for judged in spoiled:
        judged["differing"] = []
    assert q06b.check("same", recorded(tmp_path / "whole", each=each)).kind == "note"
    assert q06b.check("same", recorded(tmp_path / "other")).kind == "note"


def test_how_many_parameters_an_untied_model_has(tmp_path):
    run = recorded(tmp_path / "run", values={"parameters": TIED, "parameters_then": UNTIED})
    assert_number(q06c, (run,), UNTIED, {TIED: "Is it still one", 12: "q06c.hint()"})
    same = recorded(tmp_path / "same", values={"parameters": UNTIED, "parameters_then": UNTIED})
    assert q06c.check(UNTIED, same).kind == "note"
    assert q06c.check(UNTIED, recorded(tmp_path / "other", values={"parameters": TIED})).kind == "note"


def test_the_spent_dict_is_repaired(tmp_path):
    broken = recorded(tmp_path / "broken", values={"loaded": 1})
    mended = recorded(tmp_path / "mended", values={"loaded": 2})
    assert_repair(q06d, (broken,), (mended,))
    assert "off by 1 loads" in q06d.check(broken).text
    assert "off by 2 loads" in q06d.check(recorded(tmp_path / "none")).text


def test_how_far_memory_rises_by_slices(tmp_path):
    stages = [StageRow("shard", rss_bytes=300 * MIB), StageRow("load_slices", rss_peak_bytes=440 * MIB)]
    values = {"parameters": 264 * MIB // 4}
    run = recorded(tmp_path / "run", stages=stages, values=values)
    assert_number(q06e, (run,), 132, {264: "whole model", 396: "read for all", 10: "q06e.hint()"})
    alone = recorded(tmp_path / "alone", ranks=1, stages=stages, values=values)
    on_gpus = recorded(tmp_path / "gpus", stages=stages, values=values, device="cuda:0")
    assert {q06e.check(132, run).kind for run in (alone, on_gpus)} == {"note"}
