"""A figure that somebody else measured on GPUs, met by a dry run under its conditions."""

import importlib.util

import pytest

from fsdp2_lab.contract.published import PUBLISHED

TOLERANCE = 0.01  # of the published figure; that leaves 0.2 GiB for what a dry run does not see


@pytest.fixture(scope="module")
def published(checkout):
    spec = importlib.util.spec_from_file_location("published", checkout / "benchmarks" / "published.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def plays(published):
    """Llama-7B on 8 GPUs, with full checkpointing and with selective."""
    return [(figure, published.dry(figure)) for figure in published.FIGURES[:2]]


def test_llama_7b_on_8_gpus_is_within_a_per_cent(published, plays):
    for figure, played in plays:
        assert figure.counts == "active" and played.parameters == 6_738_415_616
        assert played.peak_bytes == pytest.approx(figure.gib * published.GIB, rel=TOLERANCE), figure.name


def test_the_two_kinds_of_checkpointing_differ_by_what_selective_keeps(published, plays):
    (figure, full), (_, selective) = plays
    shape = PUBLISHED["llama-2-7b"]
    # Of q, k, v, o, gate, up, down every second is left out; attention keeps its result and a number per head.
    kept_bytes = 2 * (4 * shape["hidden_size"] + shape["intermediate_size"]) + 4 * shape["num_attention_heads"]
    places = figure.batch * figure.seq * shape["num_hidden_layers"]
    assert selective.terms["activations"] - full.terms["activations"] == kept_bytes * places
