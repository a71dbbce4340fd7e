"""Chapter 07's exercises on every kind of answer."""

import pytest
from cases import assert_choice, assert_number, assert_repair, recorded

from fsdp2_lab.contract.record import StageRow
from fsdp2_lab.contract.units import MIB
from fsdp2_lab.learn import q07a, q07b, q07c, q07d, q07e, q07f
from fsdp2_lab.predict.account import account

SIZES = {"batch": 4, "seq": 256, "hidden": 256, "vocab": 384, "blocks": 4}


@pytest.fixture
def held(tmp_path):
    """Makes a run whose last stage left so many MiB, at this sequence length."""

    def make(mib: float, seq: int = 256, stage: str = "forward", **values):
        stages = [StageRow("load", bytes_after=6 * MIB)]
        stages += [StageRow(stage, bytes_before=6 * MIB, bytes_after=int((6 + mib) * MIB))]
        settings = {"model": "byte-llama", "batch": 4, "seq": seq}
        values = {"sizes": SIZES | {"seq": seq}, "parameters": 3_145_728} | values
        folder = tmp_path / f"{stage}-{mib}-{seq}-{len(list(tmp_path.iterdir()))}"
        return recorded(folder, stages=stages, values=values, settings=settings)

    return make


def test_what_waits_between_forward_and_backward(held):
    wrong = {4.0: "last block", 2.0: "bfloat16", 5.5: "last norm", 6.5: "besides", 20: "q07a.hint()"}
    assert_number(q07a, (held(8.6),), 8.5, wrong)


def test_the_length_at_which_activations_equal_the_state(held):
    # 24 MiB a rank, and a third of a MiB for each token of the sequence
    runs = held(64 / 3, 64), held(512 / 3, 512)
    wrong = {144: "whole state", 18: "parameters alone", 54: "not 12", 288: "whole batch", 400: "q07b.hint()"}
    assert_number(q07b, runs, 72, wrong)
    assert q07b.check(72, runs[0], held(20, 64)).kind == "note"


def test_a_module_runs_again_in_backward(held):
    evidence = (held(1, calls={"self_attn.q_proj": 2}),)
    assert_number(q07c, evidence, 2, {1: "without checkpointing", 3: "not calls"})
    assert q07c.check(2, held(1, calls={"attn.c_attn": 2})).kind == "note"


def test_flops_grow_by_less_than_a_third(held):
    off, on = held(1, flops={"forward": 10, "backward": 20}), held(2, flops={"forward": 10, "backward": 27.5})
    assert_number(q07d, (off, on), 25, {33.3: "all of forward", 100: "third of a step", 50: "the whole step"})
    assert q07d.check(25, off, off).kind == "note"


def test_children_are_not_wrapped(held):
    on = held(8.6)
    wrapped, mended = held(20.6, stage="wrapped_children"), held(8.6, stage="wrapped_children")
    assert_repair(q07e, (wrapped, on), (mended, on))
    assert "off by 12 MiB" in q07e.check(wrapped, on).text
    assert not q07e.check(held(84.7, stage="wrapped_children"), on).right  # no checkpointing at all
    assert q07e.check(held(8.6, 512, stage="wrapped_children"), on).kind == "note"


def test_activations_are_cut_first():
    job = dict(model="llama-2-7b", ranks=8, batch=4, seq=4096, device="cuda")
    off, on = account(checkpointing=False, **job), account(checkpointing=True, **job)
    doubled = account(checkpointing=False, **job | {"ranks": 16})
    assert_choice(q07f, (off, on, off.terms["logits"], doubled), "a")
    assert q07f.check("a", off, on, off.terms["logits"], doubled).text.startswith("predicted")
