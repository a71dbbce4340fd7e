"""A sharded model becomes a folder that transformers loads, without the whole model on any rank."""

import json

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.safetensors_files import safetensors_files
from fsdp2_lab.contract.settings import Settings
from fsdp2_lab.rank import initial_weights, save_pretrained

from .conftest import MODELS

RANKS = 3  # divides hardly anything


@pytest.fixture(scope="module")
def written(project, checkout, scripts, saved_models):
    """Each tiny model, loaded and sharded on 3 ranks, and written from there."""
    targets = {name: project.folder / "written" / name for name in MODELS}
    plan = [
        [str(project.folder / "cases" / name), str(targets[name]), ["--model", str(folder), "--seq", "32"]]
        for name, folder in saved_models.items()
    ]
    file = project.folder / "plan.json"
    file.write_text(json.dumps(plan))
    ended = project.run(scripts / "as_folder.py", checkout / "launch" / "load.py", file, ranks=RANKS)
    assert ended.code == 0, ended.stderr
    return targets


@pytest.mark.parametrize("name", MODELS)
def test_transformers_loads_it_to_equal_logits(name, written, saved_models):
    tokens = torch.arange(64).view(2, 32)
    before, after = (AutoModelForCausalLM.from_pretrained(folder) for folder in (saved_models[name], written[name]))
    assert type(before) is type(after)
    assert torch.equal(before(input_ids=tokens).logits, after(input_ids=tokens).logits)
    configs = [json.loads((folder / "config.json").read_text()) for folder in (saved_models[name], written[name])]
    assert configs[0] == configs[1]


@pytest.mark.parametrize("name", MODELS)
def test_it_holds_what_transformers_own_folder_holds(name, written, saved_models):
    def names(folder):
        return set(AutoModelForCausalLM.from_pretrained(folder).state_dict())

    index = json.loads((written[name] / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 1
    tied = {"lm_head.weight"} if MODELS[name]["tie_word_embeddings"] else set()
    assert set(index["weight_map"]) == names(saved_models[name]) - tied
    assert not (written[name] / "sharded").exists() and safetensors_files(written[name])


@pytest.mark.parametrize("name", ["llama", "llama-tied"])
def test_the_workbook_loads_it_strictly(name, written, saved_models):
    settings = [
        Settings(model=str(folder), param_dtype=torch.float32) for folder in (saved_models[name], written[name])
    ]
    before, after = (initial_weights(AutoConfig.from_pretrained(each.model), each) for each in settings)
    assert before.keys() == after.keys() and all(before[key].equal(after[key]) for key in before)


def test_nothing_unfinished_stays(written):
    assert sorted(path.name for path in next(iter(written.values())).parent.iterdir()) == sorted(MODELS)


def test_a_folder_that_exists_is_not_written_over(written, is_one_sentence):
    folder = written["llama"]
    model = AutoModelForCausalLM.from_pretrained(folder)
    with pytest.raises(UsageError, match="exists already") as caught:
        save_pretrained(model, folder)
    assert is_one_sentence(str(caught.value))


def test_a_folder_that_cannot_be_made_is_one_sentence(written, tmp_path, is_one_sentence):
    (tmp_path / "file").write_text("")
    model = AutoModelForCausalLM.from_pretrained(written["llama"])
    with pytest.raises(UsageError, match="cannot be written") as caught:
        save_pretrained(model, tmp_path / "file" / "model")
    assert is_one_sentence(str(caught.value))
