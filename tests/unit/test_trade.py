"""Checkpointing's trade: few blocks stand for many, both ends are the account's, and the price is FLOPs'."""

from itertools import pairwise

import pytest

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.predict import walk
from fsdp2_lab.predict.account import account
from fsdp2_lab.predict.trade import trade

JOB = dict(batch=2, seq=512)
MODELS = ("byte-llama", "gpt2", "qwen3-0.6b", "llama-2-7b")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("model", MODELS)
def test_few_blocks_stand_for_all_of_them(model, device, monkeypatch):
    layers = trade(model, 4).layers
    counts = sorted({*range(min(5, layers)), layers // 2, *range(max(0, layers - 4), layers + 1)})
    short = [trade(model, 4, count, device=device, **JOB) for count in counts]
    monkeypatch.setattr(walk, "BLOCKS", 1000)
    assert short == [trade(model, 4, count, device=device, **JOB) for count in counts]


@pytest.mark.parametrize("model", MODELS)
def test_none_and_all_are_what_the_account_says(model):
    for checkpointing in (False, True):
        one = trade(model, 8, None if checkpointing else 0, device="cuda", **JOB)
        assert one.peak_bytes == account(model, 8, checkpointing=checkpointing, device="cuda", **JOB).peak_bytes
        assert one.label == "predicted (CUDA)"


def test_every_checkpointed_block_holds_its_input_in_place_of_all_that_it_saved():
    held = [trade("llama-2-7b", 8, count, device="cuda", **JOB).held_bytes for count in range(33)]
    steps = {before - after for before, after in pairwise(held)}
    assert len(steps) == 1
    tensor = 2 * 2 * 512 * 4096
    all_checkpointed = trade("llama-2-7b", 8, device="cuda", **JOB).held
    assert all_checkpointed["block inputs"] == 32 * tensor
    assert set(all_checkpointed) == {"block inputs", "final norm", "rotary angles", "logits"}


def test_the_price_is_the_products_computed_again():
    # 4 blocks of 3 h·h (q, o, and k and v of half the width) and 3 h·f, of which the last is not computed again
    h, f, v = 256, 704, 384
    block = 3 * h * h + 3 * h * f
    assert trade("byte-llama", 2).work == pytest.approx(1 + 4 * (block - h * f) / (3 * (4 * block + v * h)))
    assert trade("byte-llama", 2, 0).work == 1
    assert trade("llama-2-7b", 8, 16).work - 1 == pytest.approx((trade("llama-2-7b", 8).work - 1) / 2)


BAD = {
    "more blocks than there are": dict(checkpointed=33),
    "fewer than none": dict(checkpointed=-1),
    "a truth value": dict(checkpointed=True),
    "half a block": dict(checkpointed=1.5),
    "no such setting": dict(checkpointing=True),
    "no batch": dict(batch=0),
    "too long": dict(seq=8192),
}


@pytest.mark.parametrize("job", BAD.values(), ids=BAD)
def test_a_trade_that_cannot_be_is_refused_in_one_sentence(job, is_one_sentence):
    with pytest.raises(UsageError) as caught:
        trade("llama-2-7b", 8, **job)
    assert is_one_sentence(str(caught.value))
