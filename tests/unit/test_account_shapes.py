"""Shapes of models: parameter counts equal transformers' own, and configs that do not say enough are refused."""

import json

import pytest

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.model_source import BUILT_IN
from fsdp2_lab.contract.published import PUBLISHED
from fsdp2_lab.predict.shapes import find_shape, known_models, read_shape

LLAMA = BUILT_IN["byte-llama"]
VARIANTS = {
    "biases": LLAMA | {"attention_bias": True, "mlp_bias": True},
    "wider heads": LLAMA | {"head_dim": 48},
    "no key and value heads said": {name: value for name, value in LLAMA.items() if name != "num_key_value_heads"},
    "qwen3 with biases, tied": LLAMA | {"model_type": "qwen3", "attention_bias": True, "tie_word_embeddings": True},
    "mistral": LLAMA | {"model_type": "mistral"},
    "gpt2 of another inner width": PUBLISHED["gpt2"] | {"n_inner": 1000, "n_layer": 2},
    "gpt2 by llama's names, untied": {
        "model_type": "gpt2",
        "vocab_size": 500,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
        "tie_word_embeddings": False,
    },
}


def parameters_on_meta(config: dict) -> int:
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    with init_empty_weights():
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    model.tie_weights()
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", known_models())
def test_a_known_model_has_as_many_parameters_as_transformers_gives_it(name):
    assert find_shape(name).parameters == parameters_on_meta((BUILT_IN | PUBLISHED)[name])


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
def test_a_folder_s_config_gives_as_many_parameters_as_transformers_makes_of_it(config, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert find_shape(str(tmp_path)).parameters == parameters_on_meta(config)


def test_published_counts_are_those_of_the_models_cards():
    billions = {"llama-2-7b": 6.74, "llama-2-70b": 68.98, "llama-3.1-405b": 405.85, "mistral-7b": 7.24, "gpt2": 0.124}
    assert {name: round(find_shape(name).parameters / 1e9, 3 if name == "gpt2" else 2) for name in billions} == billions


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "llama"}, "no `hidden_size`"),
        ({"model_type": "gpt2", "vocab_size": 100}, "no `n_embd`"),
        (LLAMA | {"vocab_size": None}, "no `vocab_size`"),
        (LLAMA | {"intermediate_size": 0}, "`intermediate_size`: 0"),
        (LLAMA | {"num_hidden_layers": "four"}, "`num_hidden_layers`: 'four'"),
        (LLAMA | {"hidden_size": True}, "`hidden_size`: True"),
        (LLAMA | {"hidden_size": 100}, "does not divide"),
        (LLAMA | {"num_key_value_heads": 3}, "evenly"),
        (LLAMA | {"model_type": "mamba"}, "no closed form"),
        (LLAMA | {"attention_dropout": 0.1}, "no closed form with `attention_dropout`"),
        (LLAMA | {"model_type": "qwen3", "use_sliding_window": True}, "no closed form with `use_sliding_window`"),
        (LLAMA | {"max_position_embeddings": -5}, "`max_position_embeddings`: -5"),
        (LLAMA | {"sliding_window": "wide", "model_type": "mistral"}, "`sliding_window`: 'wide'"),
        (PUBLISHED["gpt2"] | {"attn_pdrop": "some"}, "`attn_pdrop`: 'some'"),
        (PUBLISHED["gpt2"] | {"n_head": 5}, "does not divide"),
    ],
)
def test_a_config_that_does_not_say_its_sizes_is_refused_in_one_sentence(config, said, is_one_sentence):
    with pytest.raises(UsageError) as caught:
        read_shape(config, "ours")
    assert said in str(caught.value) and is_one_sentence(str(caught.value))


@pytest.mark.parametrize("name", ["llama-9", "../llama", "", "a\0b", "x" * 5000])
def test_an_unknown_model_is_refused_with_those_known(name, is_one_sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        find_shape(name)
    assert is_one_sentence(str(caught.value)) and len(str(caught.value)) < 700
