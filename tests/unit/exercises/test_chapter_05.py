"""Chapter 05's exercises on every kind of answer."""

import pytest
from cases import assert_choice, assert_number, assert_repair, recorded

from fsdp2_lab.contract.record import StageRow, StepRow
from fsdp2_lab.contract.units import MIB
from fsdp2_lab.learn import q05a, q05b, q05c, q05d, q05e, q05f, q05g
from fsdp2_lab.predict.account import account

QUERIES = "model.layers.0.self_attn.q_proj.weight"


@pytest.fixture
def run(tmp_path):
    """Makes a run that noted these values, and whose second step peaked so high."""

    def make(name: str = "run", ranks: int = 2, peak: int | None = None, **values):
        steps = [StepRow(step, peak_bytes=peak * MIB) for step in range(2)] if peak else []
        return recorded(tmp_path / name, ranks=ranks, steps=steps, values=values)

    return make


def test_what_a_rank_holds(tmp_path):
    run = recorded(tmp_path, stages=[StageRow("allocate", bytes_after=6 * MIB)], values={"parameters": 3_145_728})
    assert_number(q05a, (run,), 6.0, {12.0: "data parallelism", 24.0: "No gradient"})


def _sharded(folder, name: str, rows: list[int]):
    return recorded(folder, ranks=len(rows), each=[{"shards": {name: [count, 256]}} for count in rows])


def test_what_the_last_rank_gets(tmp_path):
    uneven = _sharded(tmp_path / "uneven", QUERIES, [86, 86, 84])
    assert_number(q05b, (uneven,), 84, {86: "rank 0's part", 85: "rounded down", 83: "q05b.hint()"})
    assert q05b.check(128, _sharded(tmp_path / "even", QUERIES, [128, 128])).right
    assert q05b.check(84, _sharded(tmp_path / "gpt2", "transformer.h.0.attn.c_attn.weight", [86, 84])).kind == "note"


def test_how_often_ranks_gather(run):
    layers = run(collectives={"all_gather": 10, "reduce_scatter": 5})
    wrong = {5: "Backward gathers it again", 15: "reduce-scatters, too", 8: "the root's", 4: "q05c.hint()"}
    assert_number(q05c, (layers,), 10, wrong)
    alone = run("alone", ranks=1, collectives={"all_gather": 10, "reduce_scatter": 5})
    assert q05c.check(10, alone).kind == "note"


def test_which_way_peaks_lowest(run):
    peaks = {"whole": 48, "layers": 38, "linears": 27}
    assert_choice(q05d, ({way: run(way, peak=peak) for way, peak in peaks.items()},), "linears")
    assert q05d.check("linears", {way: run(way) for way in peaks}).kind == "note"
    assert q05d.check("linears", {"whole": run("alone", ranks=1, peak=48)}).kind == "note"


def test_what_gathered_blocks_add_to_a_peak():
    job = dict(batch=1, seq=1024, device="cuda")
    evidence = (account("llama-2-7b", 8, **job), account("llama-2-7b", 8, reshard=False, **job))
    assert_number(q05e, evidence, 7.7, {12.17: "stays gathered", 12.55: "stays gathered", 0: "more than a GiB"})


@pytest.mark.parametrize(("share", "right"), [(0.999, "a"), (0.5, "b"), (0.15, "c"), (0.0, "c")])
def test_how_many_weights_a_step_changes(run, share, right):
    assert_choice(q05f, (run(changed=share),), right)


def test_the_early_optimizer_is_mended(run):
    assert_repair(q05g, (run("early", changed=0.0),), (run("late", changed=0.9998),))
    assert "100 % of its weights" in q05g.check(run("early again", changed=0.0)).text
    assert "after fully_shard" in q05g.solution().text
