"""The closed form's peaks: against a walk through every block, against known figures, and within themselves."""

import time

import pytest

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.terms import TERMS
from fsdp2_lab.contract.units import GIB
from fsdp2_lab.predict import walk
from fsdp2_lab.predict.account import account
from fsdp2_lab.predict.shapes import find_shape, known_models

JOB_7B = dict(model="llama-2-7b", ranks=8, batch=1, seq=4096, compute_dtype="bfloat16", device="cpu")


def test_the_7b_job_has_the_terms_that_a_dry_run_gave_it():
    predicted = account(**JOB_7B)
    gib = {term: round(size / GIB, 2) for term, size in predicted.terms.items()}
    assert gib["sharded_parameters"] == 3.14 and gib["optimizer"] == 6.28 and gib["sharded_gradients"] == 2.83
    assert gib["unsharded_parameters"] == 0.87 and gib["all_gather"] == 0.38 and gib["reduce_scatter"] == 0.75
    assert predicted.peak_bytes / GIB == pytest.approx(15.8, abs=0.1)
    assert predicted.peak_at == "backward of block 1 of 32"


JOBS = {
    "full checkpointing": dict(ranks=8, batch=1, seq=2048, device="cpu"),
    "all activations": dict(ranks=8, batch=1, seq=2048, checkpointing=False, device="cpu"),
    "not resharded": dict(ranks=4, batch=2, seq=512, reshard=False, device="cpu"),
    "one rank": dict(ranks=1, batch=2, seq=512, device="cpu"),
    "bfloat16 on CUDA": dict(ranks=1000, batch=2, seq=2048, device="cuda"),
    "one group": dict(ranks=8, batch=1, seq=512, granularity="model", device="cpu"),
    "one group of bfloat16 on CUDA": dict(ranks=8, batch=1, seq=512, granularity="model", fused=True, device="cuda"),
}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
@pytest.mark.parametrize("model", ["llama-3.2-1b", "gpt2"])
def test_three_blocks_stand_for_all_to_the_byte(model, job, monkeypatch):
    job = job | {"seq": min(job["seq"], find_shape(model).positions)}
    extended = account(model, **job)
    monkeypatch.setattr(walk, "BLOCKS", 1000)
    assert account(model, **job).to_json() == extended.to_json()


@pytest.mark.parametrize("model", known_models())
@pytest.mark.parametrize("ranks", [1, 8, 1024])
def test_terms_and_parts_add_up_to_the_peak(model, ranks):
    for device in ("cpu", "cuda"):
        predicted = account(model, ranks, batch=1, seq=512, device=device)
        assert tuple(predicted.terms) == TERMS and min(predicted.terms.values()) >= 0
        assert sum(predicted.terms.values()) == predicted.peak_bytes >= predicted.step0_peak_bytes
        assert sum(predicted.step0_terms.values()) == predicted.step0_peak_bytes
        parts = {term: sum(part.size_bytes for part in parts) for term, parts in predicted.parts.items()}
        assert parts == predicted.terms


def test_the_articles_formula_is_given_as_it_stands_with_what_its_overhead_is():
    predicted = account(**JOB_7B)
    article = predicted.article
    assert article["state_bytes"] / GIB == pytest.approx(12.55, abs=0.01)  # 16P/N
    assert article["boundary_bytes"] == GIB  # 2bshL
    assert article["overhead_bytes"] == 6_500_000_000
    rest = predicted.peak_bytes - article["state_bytes"] - article["boundary_bytes"]
    assert sum(article["overhead_is"].values()) == rest


def test_what_each_setting_costs():
    def peak(**changes):
        return account(**(JOB_7B | changes)).peak_bytes

    assert peak(checkpointing=False) > 2 * peak()
    assert peak(ranks=64) < peak() < peak(ranks=2)
    assert peak(reshard=False) - peak() > 9 * GIB  # all parameters stay gathered, 12.5 GiB, where they meet the logits
    assert peak() - peak(optimizer="sgd") == account(**JOB_7B).terms["optimizer"]
    assert peak(foreach=True) > peak(foreach=False)


def test_sixteen_bytes_per_parameter_are_there_at_the_optimizers_step():
    predicted = account("llama-2-7b", 8, batch=1, seq=128, device="cuda")
    assert predicted.peak_at == "the optimizer's step"
    state = sum(predicted.terms[term] for term in ("sharded_parameters", "sharded_gradients", "optimizer"))
    assert state == 16 * predicted.parameters // 8


def test_padding_is_counted():
    even, uneven = (account("gpt2", ranks, batch=1, seq=8).terms["sharded_parameters"] * ranks for ranks in (1, 1000))
    assert even == 4 * account("gpt2", 1).parameters < uneven


def test_an_answer_takes_less_than_50_ms():
    account("gpt2", 2)
    start = time.process_time()
    account("llama-3.1-405b", 1024, batch=1, seq=8192)
    assert time.process_time() - start < 0.05


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ranks": 0}, "--ranks 0"),
        ({"ranks": 2.5}, "--ranks 2.5"),
        ({"ranks": True}, "--ranks True"),
        ({"batch": 0}, "--batch 0"),
        ({"batch": "4"}, "--batch '4'"),
        ({"seq": -1}, "--seq -1"),
        ({"seq": 4097}, "positions for 4096 tokens"),
        ({"param_dtype": "float16"}, "--param-dtype float16"),
        ({"compute_dtype": "int8"}, "--compute-dtype int8"),
        ({"optimizer": "lion"}, "--optimizer lion"),
        ({"device": "tpu"}, "--device tpu"),
        ({"model": "llama-7"}, "no known name"),
    ],
)
def test_a_job_that_cannot_be_is_refused_in_one_sentence(changes, said, is_one_sentence):
    with pytest.raises(UsageError) as caught:
        account(**(JOB_7B | changes))
    assert said in str(caught.value) and is_one_sentence(str(caught.value))
