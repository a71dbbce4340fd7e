"""The cached checkpoint: trained once, saved tied and untied, and loaded with the loss that it had."""

import json

import pytest
from safetensors.torch import load_file

NAMES = ["byte-llama", "byte-llama-tied"]
SMALL = ["--batch", "4", "--seq", "64"]


@pytest.fixture(scope="module")
def pretrained(project, checkout):
    """A few steps of pretraining, on one process as the notebook does."""
    ended = project.run(checkout / "launch" / "pretrain.py", "--steps", 12, *SMALL, ranks=1)
    assert ended.code == 0, ended.stderr
    return ended.run


@pytest.fixture(scope="module")
def facts(project, pretrained):
    folder = project.folder / "checkpoints"
    return {name: json.loads((folder / name / "facts.json").read_text()) for name in NAMES}


@pytest.fixture(scope="module")
def trained(project, checkout, pretrained):
    """Training from each checkpoint, on two ranks, without naming a folder."""
    cases = {name: ["--model", name, "--steps", 3, *SMALL] for name in NAMES}
    return project.run_several(checkout / "launch" / "train.py", cases, ranks=2)


def test_both_checkpoints_are_written_and_nothing_unfinished_stays(project, pretrained):
    folder = project.folder / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == NAMES
    for name in NAMES:
        config = json.loads((folder / name / "config.json").read_text())
        assert config["tie_word_embeddings"] == (name == "byte-llama-tied")
        assert not list((folder / name).glob("*.bin"))


def test_the_untied_checkpoint_has_one_tensor_more_and_equal_weights(project, pretrained):
    untied, tied = (load_file(project.folder / "checkpoints" / name / "model.safetensors") for name in NAMES)
    assert set(untied) - set(tied) == {"lm_head.weight"}
    assert all(untied[name].equal(tied[name]) for name in tied)
    assert untied["lm_head.weight"].equal(tied["model.embed_tokens.weight"])


def test_the_facts_are_what_the_run_noted(facts, pretrained):
    for name in NAMES:
        assert facts[name]["held_out_loss"] == pretrained.noted("held_out_loss")[0]
        assert facts[name]["seq"] == 64


def test_pretraining_beats_a_model_without_weights(facts, pretrained):
    assert facts["byte-llama"]["held_out_loss"] < pretrained.losses[0] - 1.0


@pytest.mark.parametrize("name", NAMES)
def test_the_held_out_loss_after_loading_is_the_checkpoints(name, trained, facts):
    for record in trained[name]:
        assert record.values["held_out_before"] == pytest.approx(facts[name]["held_out_loss"], rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_the_held_out_loss_falls_with_training(name, trained):
    for record in trained[name]:
        assert record.values["held_out_after"] < record.values["held_out_before"]
