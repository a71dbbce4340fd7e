"""load_slices on real ranks: the stored bits in every shard, tied as before, and bad folders named on every rank."""

import hashlib
import json
import math
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.lab.stages import split_script
from fsdp2_lab.predict.dryrun import dryrun_script
from fsdp2_lab.rank import load_slices

NAMES = ["llama", "llama-tied", "qwen3", "mistral", "gpt2"]
RANKS = 3  # divides neither 64 nor 384 rows of every kind: some shards are padded


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()


def stored(folder) -> dict[str, torch.Tensor]:
    """What a folder's own files hold, read without transformers and without the lab."""
    index = folder / "model.safetensors.index.json"
    files = set(json.loads(index.read_text())["weight_map"].values()) if index.exists() else {"model.safetensors"}
    return {key: tensor for file in files for key, tensor in load_file(folder / file).items()}


class Folders:
    """Copies of a checkpoint, each with one change."""

    def __init__(self, parent, models):
        self.parent, self.models = parent, models

    def copy(self, name: str, change=None, of: str = "llama"):
        folder = self.parent / name
        shutil.copytree(self.models[of], folder)
        if change:
            tensors = load_file(folder / "model.safetensors")
            save_file(change(tensors), folder / "model.safetensors", {"format": "pt"})
        return folder

    def parts(self):
        """An index of two files, and beside them, with an index of its own, another layout that is not to be read."""
        folder = self.copy("parts")
        tensors = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        others = {f"layers.{name}": tensor + 1 for name, tensor in tensors.items()}
        save_file(others, folder / "consolidated.safetensors")
        index = {"weight_map": dict.fromkeys(others, "consolidated.safetensors")}
        (folder / "consolidated.safetensors.index.json").write_text(json.dumps(index))
        names = list(tensors)
        halves = {"a-00001.safetensors": names[:9], "a-00002.safetensors": names[9:]}
        for file, held in halves.items():
            save_file({name: tensors[name] for name in held}, folder / file)
        index = {"weight_map": {name: file for file, held in halves.items() for name in held}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        return folder

    def beside_others(self):
        """The whole in one file, and beside it another dtype, and an index that an earlier save has left."""
        folder = self.copy("beside")
        other = {name: tensor.half() + 1 for name, tensor in load_file(folder / "model.safetensors").items()}
        save_file(other, folder / "model.fp16.safetensors")
        index = {"weight_map": dict.fromkeys(other, "model-00001-of-00002.safetensors")}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        return folder

    def module(self, name="module", **others):
        """What the script's module `Odd` has, made here by hand."""
        shapes = {"row": (1, 5), "one": (6, 2), "frozen.weight": (7, 4), "frozen.bias": (7,), "table": (3, 2)}
        shapes |= {"wrapped.weight": (5, 4), "wrapped.bias": (5,)}
        draw = torch.Generator().manual_seed(5)
        tensors = {key: torch.randn(shape, generator=draw) for key, shape in shapes.items()}
        tensors["count"] = torch.tensor(41)
        (self.parent / name).mkdir()
        save_file(tensors | others, self.parent / name / "model.safetensors")
        return self.parent / name

    def cut_off(self):
        folder = self.copy("cut_off")
        file = folder / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-100])
        return folder

    def lacking_a_file(self):
        folder = self.copy("lacking")
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "gone.safetensors"}}))
        return folder

    def empty(self):
        (self.parent / "empty").mkdir()
        return self.parent / "empty"


def _without(key: str):
    return lambda tensors: {name: tensor for name, tensor in tensors.items() if name != key}


def _with(key: str, tensor: torch.Tensor):
    return lambda tensors: tensors | {key: tensor}


def _as_on_the_hub(gpt2):
    masks = {"h.0.attn.bias": torch.ones(1, 1, 512, 512)}
    return {name.removeprefix("transformer."): tensor for name, tensor in gpt2.items()} | masks


@pytest.fixture(scope="module")
def folders(tmp_path_factory, saved_models) -> Folders:
    return Folders(tmp_path_factory.mktemp("folders"), saved_models)


@pytest.fixture(scope="module")
def bad(folders) -> dict[str, tuple]:
    """Folders that cannot be loaded, and what is said of each."""
    wide, whole = torch.zeros(384, 32), torch.zeros(384, 64, dtype=torch.int64)
    copy = folders.copy
    return {
        "missing": (copy("missing", _without("model.norm.weight")), "model.norm.weight is missing"),
        "extra": (copy("extra", _with("some.bias", torch.zeros(3))), "some.bias is in the checkpoint but not in"),
        "of another shape": (copy("wide", _with("lm_head.weight", wide)), "lm_head.weight has the shape [384, 32]"),
        "whole numbers": (copy("whole", _with("lm_head.weight", whole)), "lm_head.weight is stored as I64"),
        "cut off": (folders.cut_off(), "model.safetensors cannot be read"),
        "a file is not there": (folders.lacking_a_file(), "gone.safetensors, which is not in the folder"),
        "nothing": (folders.empty(), "has no safetensors"),
        "nobody's": ("~nobody-of-that-name/x", "names no user's home"),
    }


@pytest.fixture(scope="module")
def cases(folders, bad, saved_models) -> list[dict]:
    copy, llama = folders.copy, saved_models["llama"]
    every = [{"name": name, "config": saved_models[name], "folder": saved_models[name]} for name in NAMES]
    half = copy("half", lambda tensors: {name: tensor.bfloat16() for name, tensor in tensors.items()})
    computed = copy("computed", _with("model.layers.0.self_attn.rotary_emb.inv_freq", torch.zeros(8)))
    embedding = load_file(saved_models["llama-tied"] / "model.safetensors")["model.embed_tokens.weight"]
    twice = copy("twice", _with("lm_head.weight", embedding.clone()), "llama-tied")
    odd = copy("odd", _with("lm_head.weight", embedding + 1), "llama-tied")
    renamed = {"model.embed_tokens.weight": "lm_head.weight"}
    head = copy("head", lambda tensors: {renamed.get(n, n): tensor for n, tensor in tensors.items()}, "llama-tied")
    bare = copy("bare", _as_on_the_hub, "gpt2")
    tied = saved_models["llama-tied"]
    every += [
        {"name": "parts", "config": llama, "folder": folders.parts()},
        {"name": "beside others", "config": llama, "folder": folders.beside_others()},
        {"name": "half", "config": llama, "folder": half},
        {"name": "into half", "config": llama, "folder": llama, "dtype": "bfloat16"},
        {"name": "not on meta", "config": llama, "folder": llama, "meta": False},
        {"name": "computed", "config": llama, "folder": computed},
        {"name": "stored twice", "config": tied, "folder": twice},
        {"name": "stored as head", "config": tied, "folder": head},
        {"name": "two that differ", "config": tied, "folder": odd},
        {"name": "without prefix", "config": saved_models["gpt2"], "folder": bare},
        {"name": "not strict, missing", "config": llama, "folder": bad["missing"][0], "strict": False},
        {"name": "not strict, extra", "config": llama, "folder": bad["extra"][0], "strict": False},
    ]
    every += [{"name": name, "config": llama, "folder": folder} for name, (folder, _) in bad.items()]
    every += [
        {"name": "odd", "config": "", "folder": folders.module()},
        {"name": "odd, real count", "config": "", "folder": folders.module("module-real", count=torch.tensor(41.5))},
    ]
    return [case | {"config": str(case["config"]), "folder": str(case["folder"])} for case in every]


@pytest.fixture(scope="module")
def told(project, scripts, cases) -> dict[str, list[dict]]:
    """Of each case what every rank says."""
    file = project.folder / "cases.json"
    file.write_text(json.dumps(cases))
    ended = project.run(scripts / "slices.py", file, ranks=RANKS)
    assert ended.code == 0, ended.stderr
    return {case["name"]: [record.values[case["name"]] for record in ended.run.records] for case in cases}


@pytest.mark.parametrize("name", NAMES)
def test_every_shard_is_the_files_own_to_the_bit_and_each_rank_read_its_rows(name, told, saved_models):
    tensors = stored(saved_models[name])
    for rank in told[name]:
        assert rank["whole"] == {key: digest(tensor) for key, tensor in tensors.items()}
    for key, tensor in tensors.items():
        rows = [rank["rows"][key] for rank in told[name]]
        assert sum(rows) == len(tensor) and max(rows) == math.ceil(len(tensor) / RANKS), key
    assert sum(rank["bytes_read"] for rank in told[name]) == sum(tensor.nbytes for tensor in tensors.values())


@pytest.mark.parametrize("name", NAMES)
def test_the_model_computes_what_the_plain_one_does_and_every_parameter_learns(name, told, saved_models):
    plain = AutoModelForCausalLM.from_pretrained(saved_models[name])
    words = torch.arange(3, 35)[None]
    loss = plain(input_ids=words, labels=words).loss.item()
    for rank in told[name]:
        assert rank["loss"] == pytest.approx(loss, rel=1e-5)
        assert rank["gradients"] == len(list(plain.parameters()))
        assert rank["tied"] == plain.config.tie_word_embeddings
        assert rank["buffers"] == {key: digest(buffer) for key, buffer in plain.named_buffers()}


def test_ways_of_storing_the_same_tensors_give_the_same_shards(told):
    for name in ("parts", "beside others", "not on meta", "computed"):
        assert "error" not in told[name][0], told[name][0]
        assert told[name][0]["whole"] == told["llama"][0]["whole"], name
    for name in ("stored twice", "stored as head"):
        assert [rank["whole"] for rank in told[name]] == [rank["whole"] for rank in told["llama-tied"]], name
        assert all(rank["tied"] for rank in told[name])
    assert told["without prefix"][2]["whole"] == told["gpt2"][2]["whole"]


def test_a_module_of_ones_own_is_filled_with_its_buffers_and_stays_tied_and_frozen(told, folders, is_one_sentence):
    tensors = load_file(folders.parent / "module" / "model.safetensors")
    for rank in told["odd"]:
        unwrapped = {name.replace("_checkpoint_wrapped_module.", ""): bits for name, bits in rank["whole"].items()}
        assert unwrapped == {key: digest(tensor) for key, tensor in tensors.items()}
        assert rank["tied"] and rank["frozen"] == ["frozen.weight", "frozen.bias"]
    for rank in told["odd, real count"]:
        assert "count is stored as F32" in rank["error"] and rank["on_meta"] and is_one_sentence(rank["error"])


def test_without_a_group_one_process_loads_and_no_tensor_is_taken_for_two(tmp_path):
    class Model(torch.nn.Module):
        base_model_prefix = "model"

        def __init__(self):
            super().__init__()
            self.model = torch.nn.Linear(3, 2)
            self.weight = torch.nn.Parameter(torch.zeros(2, 3))

    whole = {"model.weight": torch.ones(2, 3), "model.bias": torch.ones(2), "weight": torch.full((2, 3), 2.0)}
    save_file(whole, tmp_path / "model.safetensors")
    model = Model()
    load_slices(model, str(tmp_path), torch.device("cpu"))
    assert all(torch.equal(value, whole[name]) for name, value in model.state_dict().items())
    save_file({name: whole[name] for name in ("model.bias", "weight")}, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match="weight is missing"):
        load_slices(model, tmp_path, torch.device("cpu"))


def test_dtypes_are_converted_on_the_way_and_the_stored_bytes_read(told, folders, saved_models):
    tensors = load_file(folders.parent / "half" / "model.safetensors")
    assert told["half"][1]["whole"] == {name: digest(tensor.float()) for name, tensor in tensors.items()}
    assert sum(rank["bytes_read"] for rank in told["half"]) == sum(tensor.nbytes for tensor in tensors.values())
    tensors = stored(saved_models["llama"])
    assert told["into half"][1]["whole"] == {name: digest(tensor.bfloat16()) for name, tensor in tensors.items()}


def test_a_checkpoint_that_differs_where_the_model_is_tied_is_refused(told, is_one_sentence):
    for rank in told["two that differ"]:
        assert "differ" in rank["error"] and "tie_word_embeddings" in rank["error"]
        assert is_one_sentence(rank["error"])


def test_not_strict_names_what_has_no_counterpart(told):
    for rank in told["not strict, missing"]:
        assert (rank["missing"], rank["extra"]) == (["model.norm.weight"], [])
        assert "model.norm.weight" not in rank["whole"] and len(rank["whole"]) == len(told["llama"][0]["whole"]) - 1
    for rank in told["not strict, extra"]:
        assert (rank["missing"], rank["extra"]) == ([], ["some.bias"])
        assert rank["loss"] == pytest.approx(told["llama"][0]["loss"])


def test_a_bad_folder_is_named_on_every_rank_in_one_sentence_and_the_model_left_alone(told, bad, is_one_sentence):
    for name, (_, expected) in bad.items():
        for rank in told[name]:
            assert expected in rank["error"] and rank["on_meta"], name
            assert is_one_sentence(rank["error"])


def test_replicas_of_shards_read_the_same_rows(project, scripts, saved_models):
    file = project.folder / "replicas.json"
    model = str(saved_models["qwen3"])
    file.write_text(json.dumps([{"name": "replicas", "config": model, "folder": model, "replicate": 2, "group": True}]))
    ended = project.run(scripts / "slices.py", file, ranks=4)
    assert ended.code == 0, ended.stderr
    ranks = [record.values["replicas"] for record in ended.run.records]
    tensors = stored(saved_models["qwen3"])
    for rank, replica in zip(ranks[:2], ranks[2:], strict=True):
        assert rank["rows"] == replica["rows"] and rank["bytes_read"] == replica["bytes_read"]
        assert rank["whole"] == replica["whole"] == {key: digest(tensor) for key, tensor in tensors.items()}
    assert sum(rank["bytes_read"] for rank in ranks) == 2 * sum(tensor.nbytes for tensor in tensors.values())


def test_training_starts_from_slices_where_their_section_takes_loads_place(project, checkout, saved_models):
    """Played and in earnest: the same losses and the same predicted bytes as of launch/train.py."""
    launch = checkout / "launch"
    header, sections = split_script((launch / "train.py").read_text())
    _, by_slices = split_script((launch / "load_slices.py").read_text())
    script = project.folder / "train_by_slices.py"
    sections["load"] = by_slices["load_slices"]
    script.write_text(header + "\n".join(sections.values()))
    argv = ["--model", str(saved_models["llama-tied"]), "--steps", "3", "--batch", "2", "--seq", "64"]
    runs = [project.run(each, *argv, ranks=3).run for each in (script, launch / "train.py")]
    assert runs[0].losses == runs[1].losses and len(runs[0].losses) == 3
    assert runs[0].peak_bytes == pytest.approx(runs[1].peak_bytes, rel=0.05)  # gloo's thread may hold a buffer
    played = [dryrun_script(each, 8, argv, device="cuda") for each in (script, launch / "train.py")]
    assert played[0].peak_bytes == played[1].peak_bytes and played[0].terms == played[1].terms
