"""What the ranks hold after the stage `load`, for five models: the source's weights, right buffers, tied as before."""

import math
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.settings import Settings
from fsdp2_lab.lab.stages import Stage
from fsdp2_lab.rank import initial_weights

CELL = '''"""Keep what this rank holds after loading, gathered, for the test to look at."""
parameters = {name: parameter.full_tensor() for name, parameter in model.named_parameters()}
tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
rows = {name: len(parameter.to_local()) for name, parameter in model.named_parameters()}
held = {"parameters": parameters, "buffers": dict(model.named_buffers()), "tied": tied, "rows": rows}
torch.save(held, f"{os.environ['FSDP2_LAB_RUN_DIR']}/{rank}.pt")
'''
RANKS = 3
NAMES = ["llama", "llama-tied", "qwen3", "mistral", "gpt2"]
WAYS = [f"{name}, {way}" for name in NAMES for way in ("from a checkpoint", "random")]


@pytest.fixture(scope="module")
def held(project, checkout, model_folders, saved_models):
    """For each model and way of loading: what every rank held, with every parameter gathered."""
    (project.folder / "launch").unlink()
    shutil.copytree(checkout / "launch", project.folder / "launch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FSDP2_LAB_HOME", str(project.folder))
        script = Stage("probe", CELL, "load").write()
    cases = {f"{name}, from a checkpoint": ["--model", saved_models[name]] for name in NAMES}
    cases |= {f"{name}, random": ["--model", model_folders[name], "--seed", "7"] for name in NAMES}
    project.run_several(script, cases, ranks=RANKS)
    folders = {way: project.folder / "several" / f"probe-{RANKS}-{way}" for way in cases}
    return {way: [torch.load(folder / f"{rank}.pt") for rank in range(RANKS)] for way, folder in folders.items()}


@pytest.fixture(scope="module")
def plainly(model_folders, saved_models):
    """Builds a model on one process, without the lab: from its checkpoint, or random from seed 7."""

    def build(way: str):
        name, _, source = way.partition(", ")
        torch.manual_seed(7)
        if source == "random":
            return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model_folders[name]))
        return AutoModelForCausalLM.from_pretrained(saved_models[name])

    return build


@pytest.mark.parametrize("way", WAYS)
def test_every_parameter_is_the_sources_on_every_rank(way, held, plainly):
    expected = dict(plainly(way).named_parameters())
    for rank in held[way]:
        assert rank["parameters"].keys() == expected.keys()
        for name, parameter in expected.items():
            assert torch.equal(rank["parameters"][name], parameter), name


@pytest.mark.parametrize("way", WAYS)
def test_each_rank_keeps_its_share_of_every_parameter(way, held):
    for name, parameter in held[way][0]["parameters"].items():
        rows = [rank["rows"][name] for rank in held[way]]
        assert sum(rows) == len(parameter), name
        assert max(rows) == math.ceil(len(parameter) / RANKS), name


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoints_file_holds_the_same_numbers(name, held, saved_models):
    # Read without transformers, so that a fault in its loading would show.
    stored = load_file(saved_models[name] / "model.safetensors")
    loaded = held[f"{name}, from a checkpoint"][0]["parameters"]
    assert {key.removeprefix("transformer.") for key in loaded} == {key.removeprefix("transformer.") for key in stored}
    for key, tensor in stored.items():
        found = loaded[key] if key in loaded else loaded[f"transformer.{key}"]
        assert torch.equal(found, tensor), key


@pytest.mark.parametrize("way", WAYS)
def test_buffers_are_right_on_every_rank(way, held, plainly):
    expected = dict(plainly(way).named_buffers())
    for rank in held[way]:
        assert rank["buffers"].keys() == expected.keys()
        for name, buffer in expected.items():
            assert torch.equal(rank["buffers"][name], buffer), name


def test_the_models_with_rotary_positions_have_buffers_to_compare(held):
    # Without buffers the test above would compare nothing with nothing.
    for name in ("llama", "llama-tied", "qwen3", "mistral"):
        assert any(key.endswith("inv_freq") for key in held[f"{name}, random"][0]["buffers"])


@pytest.mark.parametrize("way", WAYS)
def test_tied_weights_stay_tied_and_others_apart(way, held, model_folders):
    config = AutoConfig.from_pretrained(model_folders[way.partition(", ")[0]])
    assert {rank["tied"] for rank in held[way]} == {config.tie_word_embeddings}


@pytest.fixture
def spoiled(tmp_path, saved_models):
    """Copies a checkpoint and changes its weights."""
    from safetensors.torch import save_file

    def make(change):
        folder = tmp_path / "spoiled"
        shutil.copytree(saved_models["llama"], folder)
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return folder

    return make


def _missing(tensors):
    del tensors["model.norm.weight"]


def _extra(tensors):
    tensors["model.layers.0.mlp.bias"] = torch.zeros(3)


def _of_another_shape(tensors):
    tensors["lm_head.weight"] = torch.zeros(384, 32)


SPOILED = {
    "missing": (_missing, "model.norm.weight is missing"),
    "extra": (_extra, "model.layers.0.mlp.bias is in the checkpoint but not in the model"),
    "of another shape": (_of_another_shape, "lm_head.weight has another shape"),
}


@pytest.mark.parametrize(("change", "named"), SPOILED.values(), ids=SPOILED)
def test_a_weight_that_does_not_fit_is_named_in_one_sentence(change, named, spoiled, home, is_one_sentence):
    settings = Settings(model=str(spoiled(change)), param_dtype=torch.float32)
    with pytest.raises(UsageError, match=named) as caught:
        initial_weights(AutoConfig.from_pretrained(settings.model), settings)
    assert is_one_sentence(str(caught.value))


def test_a_weight_that_does_not_fit_ends_a_launch_with_that_sentence(spoiled, project, checkout):
    ended = project.run(checkout / "launch" / "load.py", "--model", spoiled(_missing))
    assert ended.code == 1
    error = ended.told["error"]
    assert (error["rank"], error["type"]) == (0, "UsageError")
    assert "model.norm.weight is missing from the checkpoint" in error["message"]
    assert "model.norm.weight is missing" in ended.stderr and "Traceback" not in ended.stderr


def test_a_dict_is_spent_by_loading_unless_a_new_one_is_passed(project, checkout, saved_models):
    spent = project.run(checkout / "launch" / "load_twice.py", "--model", saved_models["llama"])
    assert (spent.code, spent.told["error"]["rank"]) == (1, 0)
    assert spent.told["error"]["type"] == "NotImplementedError" and "broadcast" in spent.told["error"]["message"]
    assert spent.run.noted("loaded")[0] == 1

    mended = (checkout / "launch" / "load_twice.py").read_text().replace("(model, weights,", "(model, dict(weights),")
    (project.folder / "twice.py").write_text(mended)
    assert project.run(project.folder / "twice.py", "--model", saved_models["llama"]).run.noted("loaded")[0] == 2


def test_a_tied_model_comes_untied_until_its_first_forward_and_the_optimizer_keeps_the_second(
    project, checkout, saved_models
):
    ended = project.run(checkout / "launch" / "load_untied.py", "--model", saved_models["llama-tied"], "--seq", 64)
    assert ended.code == 0, ended.stderr
    for record in ended.run.records:
        values = record.values
        assert values["parameters_then"] - values["parameters"] == 384 * 64  # the head has become one of its own
        assert values["in_optimizer"] == values["parameters_then"]
        assert values["parameters_after"] == values["parameters"]
        assert values["embedding_learns"] and not values["head_learns"]
