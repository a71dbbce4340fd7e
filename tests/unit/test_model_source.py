"""What `--model` and `--weights` may say, and where the weights then come from."""

import json
import os

import pytest

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.model_source import BUILT_IN, find_model
from fsdp2_lab.contract.published import PUBLISHED
from fsdp2_lab.lab.checkpoints import checkpoint

CONFIG = json.dumps({"model_type": "llama", "max_position_embeddings": 512})
BAD_FOLDERS = {
    "no config": ({}, "no config.json"),
    "broken JSON": ({"config.json": '{"model_type": '}, "cannot be read"),
    "a config that is no text": ({"config.json": b"\xff\xfe\x00"}, "cannot be read"),
    "a config that is a list": ({"config.json": '["llama"]'}, "model_type"),
    "a config deeper than Python's stack": ({"config.json": '{"a": ' + "[" * 200_000}, "nested too deeply"),
    "a model_type that is no text": ({"config.json": '{"model_type": 3}'}, "model_type"),
    "a config without model_type": ({"config.json": '{"hidden_size": 8}'}, "model_type"),
    "only a pickle": ({"config.json": CONFIG, "pytorch_model.bin": b""}, "pickle"),
    "only a pickle by another name": ({"config.json": CONFIG, "model.pt": b""}, "model.pt"),
}


@pytest.fixture
def folder_with(tmp_path):
    def make(files: dict, name: str = "model"):
        folder = tmp_path / name
        folder.mkdir()
        for file, content in files.items():
            (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)
        return folder

    return make


@pytest.mark.parametrize(("files", "named"), BAD_FOLDERS.values(), ids=BAD_FOLDERS)
def test_a_folder_that_cannot_be_used_is_refused_in_one_sentence(files, named, folder_with, home, is_one_sentence):
    folder = folder_with(files)
    with pytest.raises(UsageError) as caught:
        find_model(str(folder))
    assert named in str(caught.value) and str(folder) in str(caught.value)
    assert is_one_sentence(str(caught.value))


def test_a_missing_folder_is_answered_with_the_known_names(home, is_one_sentence):
    with pytest.raises(UsageError) as caught:
        find_model("/no/such/folder")
    assert all(name in str(caught.value) for name in BUILT_IN | PUBLISHED)
    assert is_one_sentence(str(caught.value))


def test_a_published_models_name_is_its_shape_without_weights(home):
    source = find_model("mistral-7b")
    assert (source.config, source.folder, source.checkpoint) == (PUBLISHED["mistral-7b"], None, None)
    with pytest.raises(UsageError, match="without weights"):
        checkpoint("mistral-7b")


def test_a_file_is_no_model_folder(tmp_path, home):
    (tmp_path / "model").write_text("a file")
    with pytest.raises(UsageError, match="no such folder"):
        find_model(str(tmp_path / "model"))


def test_a_folder_with_only_a_config_gets_random_weights(folder_with, home):
    source = find_model(str(folder_with({"config.json": CONFIG})))
    assert source.checkpoint is None
    assert source.config["model_type"] == "llama"


def test_a_folder_with_safetensors_is_its_own_checkpoint(folder_with, home):
    folder = folder_with({"config.json": CONFIG, "model.safetensors": b"", "pytorch_model.bin": b""})
    assert find_model(str(folder)).checkpoint == folder


def test_random_is_a_way_out_of_a_pickle(folder_with, home):
    folder = folder_with({"config.json": CONFIG, "pytorch_model.bin": b""})
    assert find_model(str(folder), "random").checkpoint is None


def test_random_goes_before_a_checkpoint(folder_with, home):
    folder = folder_with({"config.json": CONFIG, "model.safetensors": b""})
    assert find_model(str(folder), "random").checkpoint is None


def test_weights_may_come_from_another_folder(folder_with, home):
    model = folder_with({"config.json": CONFIG})
    weights = folder_with({"model-00001-of-00002.safetensors": b""}, "weights")
    assert find_model(str(model), str(weights)).checkpoint == weights


@pytest.mark.parametrize("files", [{}, {"config.json": CONFIG}, {"pytorch_model.bin": b""}])
def test_weights_from_a_folder_without_safetensors_are_refused(files, folder_with, home, is_one_sentence):
    folder = folder_with(files)
    with pytest.raises(UsageError) as caught:
        find_model("byte-llama", str(folder))
    assert "safetensors" in str(caught.value)
    assert is_one_sentence(str(caught.value))


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_model_uses_its_cached_checkpoint_once_there_is_one(name, home):
    assert find_model(name).checkpoint is None
    cached = home / "checkpoints" / name
    cached.mkdir(parents=True)
    (cached / "model.safetensors").touch()
    assert find_model(name).checkpoint == cached


def test_the_two_built_in_models_differ_in_tied_embeddings_alone():
    plain, tied = BUILT_IN["byte-llama"], BUILT_IN["byte-llama-tied"]
    assert {key for key in plain | tied if plain[key] != tied[key]} == {"tie_word_embeddings"}


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        ({"model_type": "llama", "max_position_embeddings": 512}, 512),
        ({"model_type": "gpt2", "n_positions": 64}, 64),
        ({"model_type": "bloom"}, None),
    ],
)
def test_the_longest_sequence_is_read_from_the_config(config, limit, folder_with, home):
    assert find_model(str(folder_with({"config.json": json.dumps(config)}))).max_seq == limit


def test_an_index_that_names_a_missing_file_is_refused_and_a_whole_one_is_a_checkpoint(folder_with):
    index = json.dumps({"weight_map": {"a": "part/model-1.safetensors", "b": "part/model-2.safetensors"}})
    folder = folder_with({"config.json": CONFIG, "model.safetensors.index.json": index})
    (folder / "part").mkdir()
    (folder / "part" / "model-1.safetensors").touch()
    with pytest.raises(UsageError, match=r"names part/model-2\.safetensors"):
        find_model(str(folder))
    (folder / "part" / "model-2.safetensors").touch()
    assert find_model(str(folder)).checkpoint == folder


@pytest.mark.parametrize("name", ["training_args.bin", "optimizer.pt", "adapter_model.safetensors"])
def test_what_is_no_models_weights_leaves_the_weights_random(folder_with, name):
    folder = folder_with({"config.json": CONFIG, name: b""})
    assert find_model(str(folder)).checkpoint is None


@pytest.mark.parametrize("name", ["x" * 3000, "~nobody_by_that_name/x", "a\0b"])
def test_a_name_that_is_no_path_is_refused_in_one_sentence(name, is_one_sentence):
    with pytest.raises(UsageError) as caught:
        find_model(name)
    assert is_one_sentence(str(caught.value))


def test_a_config_may_hold_infinity_as_some_models_do(folder_with, home):
    source = find_model(
        str(folder_with({"config.json": '{"model_type": "mamba2", "time_step_limit": [0.0, Infinity]}'}))
    )
    assert source.config["time_step_limit"][1] == float("inf")


def test_a_config_that_is_a_pipe_is_refused_and_nobody_waits_for_it(folder_with, home, is_one_sentence):
    folder = folder_with({})
    os.mkfifo(folder / "config.json")
    with pytest.raises(UsageError, match="no plain file") as caught:
        find_model(str(folder))
    assert is_one_sentence(str(caught.value))


OUTSIDE = ["../x.safetensors", "a/../../x.safetensors", "/etc/x.safetensors", "x.bin", "", "..", "a\0.safetensors", 3]


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_index_cannot_name_a_file_outside_its_folder(name, folder_with, tmp_path, is_one_sentence):
    (tmp_path / "x.safetensors").touch()
    index = json.dumps({"weight_map": {"a": name}})
    folder = folder_with({"config.json": CONFIG, "model.safetensors.index.json": index})
    with pytest.raises(UsageError, match=r"no safetensors file|no index") as caught:
        find_model(str(folder))
    assert is_one_sentence(str(caught.value))


def test_a_checkpoint_of_a_hubs_cache_is_links_to_files_and_is_read(folder_with, tmp_path):
    index = json.dumps({"weight_map": {"a": "model-1.safetensors"}})
    blobs = folder_with({"1": CONFIG, "2": index, "3": b""}, "blobs")
    folder = folder_with({}, "snapshot")
    for name, blob in (("config.json", "1"), ("model.safetensors.index.json", "2"), ("model-1.safetensors", "3")):
        (folder / name).symlink_to(blobs / blob)
    assert find_model(str(folder)).checkpoint == folder
