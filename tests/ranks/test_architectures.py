"""launch/train.py trains models of other families without a change: their blocks are found."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.rank import find_blocks

NAMES = ["qwen3", "mistral", "gpt2"]
STEPS = 3


@pytest.fixture(scope="module")
def trained(project, checkout, model_folders):
    """Three steps of each model on two ranks."""
    argv = ["--steps", STEPS, "--batch", 2, "--seq", 64, "--lr", "1e-3"]
    cases = {name: ["--model", model_folders[name], *argv] for name in NAMES}
    return project.run_several(checkout / "launch" / "train.py", cases, ranks=2)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_another_family_trains(name, trained):
    for record in trained[name]:
        assert record.status == "ok" and len(record.steps) == STEPS
        assert record.values["held_out_after"] < record.values["held_out_before"]


@pytest.mark.parametrize(("name", "kind"), [("qwen3", "Qwen3DecoderLayer"), ("mistral", "MistralDecoderLayer")])
def test_blocks_are_found_in_order(name, kind, model_folders):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model_folders[name]))
    assert [type(block).__name__ for block in find_blocks(model)] == [kind] * 2
    assert find_blocks(model) == list(model.model.layers)


def test_blocks_of_gpt2_are_found_by_another_name(model_folders):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model_folders["gpt2"]))
    assert find_blocks(model) == list(model.transformer.h)


def test_a_list_inside_a_block_is_no_list_of_blocks():
    block = torch.nn.ModuleDict({"experts": torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(3))})
    model = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([block])})
    assert find_blocks(model) == [block]


@pytest.mark.parametrize(
    "model",
    [
        torch.nn.Linear(2, 2),
        torch.nn.ModuleDict({"layers": torch.nn.ModuleList()}),
        torch.nn.ModuleDict({"layers": torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.LayerNorm(2)])}),
        torch.nn.ModuleDict({"layers": torch.nn.ModuleList([torch.nn.Dropout(), torch.nn.Dropout()])}),
    ],
    ids=["no list", "an empty list", "a mixed list", "a list without parameters"],
)
def test_a_model_in_which_nothing_repeats_is_refused(model, is_one_sentence):
    with pytest.raises(UsageError, match="no repeated block list") as caught:
        find_blocks(model)
    assert is_one_sentence(str(caught.value))
