"""Chapter 07's statements on real ranks: bytes for backward, FLOPs computed again, and who gets a gradient."""

import pytest

from fsdp2_lab.predict.trade import trade

RANKS, BATCH = 2, 2
JOB = ["--batch", BATCH, "--weights", "random", "--compute-dtype", "float32"]
LENGTHS = (64, 128, 256)


def held(record, stage: str) -> int:
    (row,) = [row for row in record.stages if row.name == stage]
    return row.bytes_after - row.bytes_before


def predicted(seq: int, checkpointed: int | None) -> int:
    return trade("byte-llama", RANKS, checkpointed, batch=BATCH, seq=seq, device="cpu").held_bytes


@pytest.fixture(scope="module")
def records(project, scripts) -> list:
    """Both ranks' records of forwards of all lengths with the first 0, 1, 2 and all 4 blocks checkpointed."""
    ended = project.run(scripts / "first_blocks.py", *JOB, "--seq", max(LENGTHS), ranks=RANKS)
    assert ended.code == 0, ended.stderr
    return ended.run.records


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_what_waits_for_backward_is_the_closed_forms_and_grows_with_the_length(records, count):
    for record in records:
        each_token = []
        for seq in LENGTHS:
            size = held(record, f"first_{count}_of_{seq}")
            assert size == pytest.approx(predicted(seq, count), rel=0.01)
            each_token.append(size / seq)
        assert max(each_token) < 1.02 * min(each_token)  # no term of seq squared


def test_checkpointing_keeps_a_tenth_here(records):
    assert 0.08 < held(records[0], "first_4_of_256") / held(records[0], "first_0_of_256") < 0.12


def test_flops_grow_as_predicted_and_the_last_product_is_not_computed_again(project):
    cases = {which: [*JOB, "--seq", 64, "--checkpointing", which] for which in ("true", "false")}
    counted = project.run_several("launch/recompute.py", cases, RANKS)
    on, off = (counted[which][0].values for which in ("true", "false"))
    flops = sum(on["flops"].values()) / sum(off["flops"].values())
    assert flops == pytest.approx(trade("byte-llama", RANKS).work, rel=1e-6)
    assert set(off["calls"].values()) == {1}
    assert (on["calls"]["self_attn.q_proj"], on["ends"]["self_attn.q_proj"]) == (2, 2)
    assert (on["calls"]["mlp.down_proj"], on["ends"]["mlp.down_proj"]) == (2, 1)


def test_wrapped_children_keep_three_more_inputs_a_block(project):
    ended = project.run("launch/wrapped_children.py", *JOB, "--seq", 128, ranks=RANKS)
    assert ended.code == 0, ended.stderr
    more = held(ended.run.records[0], "wrapped_children") - predicted(128, None)
    assert more == pytest.approx(4 * 3 * 4 * BATCH * 128 * 256, rel=0.03)  # and more random states


def test_a_frozen_embedding_stops_gradients_under_use_reentrant_without_a_word(project):
    ended = project.run("launch/reentrant.py", *JOB, "--seq", 64, ranks=RANKS)
    assert ended.code == 0, ended.stderr
    for record in ended.run.records:
        rows = record.values["rows"]
        assert [row[:2] for row in rows] == [[False, False], [True, False], [True, True]]
        assert [row[3] for row in rows] == ["36 of 36", "0 of 36", "36 of 36"]
        assert rows[0][2] == pytest.approx(rows[1][2]) == pytest.approx(rows[2][2])
