"""What fits, the smallest N and the largest batch: against trying every one, and what is said where nothing fits."""

import json
import time

import pytest

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.units import GIB
from fsdp2_lab.predict import plan
from fsdp2_lab.predict.account import account
from fsdp2_lab.predict.plan import RANKS, RESERVE_GIB, Budget, fit, largest_batch, peaks_by_ranks, smallest_ranks

JOBS = {
    "checkpointing": dict(seq=1024),
    "all activations": dict(seq=512, checkpointing=False),
    "kept gathered": dict(seq=256, reshard=False),
    "neither": dict(seq=128, checkpointing=False, reshard=False),
}
MODELS = ["gpt2-xl", "llama-3.2-1b", "llama-2-7b"]


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("gib", [2.5, 8, 24, 80])
def test_the_smallest_n_is_the_first_that_fits_when_every_one_is_tried(model, job, gib):
    fitting = [n for n in RANKS if account(model, n, batch=2, device="cuda", **job).peak_bytes <= (gib - 2) * GIB]
    found = smallest_ranks(model, gib, batch=2, **job)
    assert found.value == (fitting[0] if fitting else None)
    assert (found.blame is None) == bool(fitting)


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
@pytest.mark.parametrize(("model", "ranks"), [("gpt2-xl", 1), ("llama-3.2-1b", 2), ("llama-2-7b", 8)])
def test_the_largest_batch_is_the_last_that_fits_when_every_one_is_tried(model, ranks, job, monkeypatch):
    monkeypatch.setattr(plan, "MOST_BATCH", 64)
    peaks = [account(model, ranks, batch=batch, device="cuda", **job).peak_bytes for batch in range(1, 65)]
    assert peaks == sorted(peaks)
    for gib in (4, 20, 34, 48, 80, 200):
        fitting = [batch for batch, peak in enumerate(peaks, 1) if peak <= (gib - 2) * GIB]
        found = largest_batch(model, ranks, gib, **job)
        assert found.value == (fitting[-1] if fitting else None)
        assert ("or more" in found.sentence) == (found.value == 64)


def test_more_ranks_can_need_more_where_rows_are_padded_and_the_smallest_n_is_found_all_the_same():
    peaks = [each.peak_bytes for each in peaks_by_ranks("byte-llama", batch=1, seq=128)]
    assert peaks != sorted(peaks, reverse=True)
    between = (peaks[-1] + min(peaks)) / 2 / GIB
    found = smallest_ranks("byte-llama", between, 0, batch=1, seq=128)
    assert found.value == next(n for n, peak in zip(RANKS, peaks, strict=True) if peak <= between * GIB) < RANKS[-1]


def test_a_fit_is_judged_to_the_byte_and_the_reserve_counts():
    size = account("gpt2", 2, batch=1, seq=128, device="cuda").peak_bytes
    assert fit("gpt2", 2, size / GIB, 0, batch=1, seq=128).value is True
    assert fit("gpt2", 2, (size - 1) / GIB, 0, batch=1, seq=128).value is False
    assert fit("gpt2", 2, size / GIB + 1, 1.1, batch=1, seq=128).value is False
    assert Budget(40).usable_bytes == (40 - RESERVE_GIB) * GIB


# what does not fit: the answer, its blame, and what would help
NOTHING = {
    "state": (lambda: fit("llama-2-7b", 4, 24, batch=1, seq=2048), "optimizer", "more ranks"),
    "gathered": (
        lambda: smallest_ranks("llama-3.1-405b", 80, batch=1, seq=4096, reshard=False),
        "unsharded_parameters",
        "reshard frees",
    ),
    "activations": (
        lambda: smallest_ranks("llama-3.1-405b", 80, batch=1, seq=4096, checkpointing=False),
        "activations",
        "checkpointing would",
    ),
    "boundaries": (lambda: smallest_ranks("llama-3.1-405b", 40, batch=1, seq=4096), "activations", "shorter sequence"),
    "logits": (lambda: smallest_ranks("llama-3.1-8b", 24, batch=8, seq=8192), "logits", "smaller batch"),
    "batch": (lambda: largest_batch("llama-2-7b", 4, 24, seq=2048), "optimizer", "more ranks"),
}


@pytest.mark.parametrize(("ask", "blame", "cure"), NOTHING.values(), ids=NOTHING)
def test_where_nothing_fits_the_largest_term_is_named_with_what_cuts_it(ask, blame, cure):
    answer = ask()
    assert not answer.value
    assert answer.blame == blame == max(answer.account.terms, key=answer.account.terms.get)
    assert cure in str(answer)


def test_the_answers_of_a_drag_come_in_the_time_of_one():
    plan._account.cache_clear()
    began = time.process_time()
    job = dict(batch=1, seq=4096)
    for _ in range(3):
        fit("llama-3.1-405b", 512, 80, **job)
        smallest_ranks("llama-3.1-405b", 80, **job)
        largest_batch("llama-3.1-405b", 512, 80, **job)
    assert time.process_time() - began < 1.0


BAD = {
    "no memory": lambda: fit("gpt2", 1, 0),
    "no number": lambda: fit("gpt2", 1, "80"),
    "no finite number": lambda: fit("gpt2", 1, float("nan")),
    "a truth value for memory": lambda: fit("gpt2", 1, True),
    "a reserve of everything": lambda: smallest_ranks("gpt2", 2, 2),
    "a reserve below zero": lambda: smallest_ranks("gpt2", 2, -1),
    "no ranks": lambda: largest_batch("gpt2", 0, 80),
    "half a rank": lambda: fit("gpt2", 0.5, 80),
    "no such model": lambda: fit("gpt-9", 1, 80),
    "a model of another kind": lambda: smallest_ranks(None, 80),
    "too long a sequence": lambda: largest_batch("gpt2", 1, 80, seq=1025),
    "no such setting": lambda: fit("gpt2", 1, 80, layers=3),
    "a list for a batch": lambda: fit("gpt2", 1, 80, batch=[1]),
    "a truth value for a batch": lambda: (fit("gpt2", 1, 80, batch=1), fit("gpt2", 1, 80, batch=True)),
}


@pytest.mark.parametrize("ask", BAD.values(), ids=BAD)
def test_what_cannot_be_is_one_sentence(ask, is_one_sentence):
    with pytest.raises(UsageError) as caught:
        ask()
    assert is_one_sentence(str(caught.value))


def test_a_folder_is_read_again_when_its_config_has_changed(tmp_path):
    config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": 384}
    (tmp_path / "config.json").write_text(json.dumps(config))
    before = fit(str(tmp_path), 1, 8, seq=64).account.parameters
    (tmp_path / "config.json").write_text(json.dumps(config | {"n_layer": 13}))
    assert fit(str(tmp_path), 1, 8, seq=64).account.parameters > before
