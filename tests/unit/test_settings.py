"""The command line: every bad value gives one sentence, every good one comes through."""

from dataclasses import asdict, replace

import pytest

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.settings import Settings, describe, parse_settings, to_argv

BAD = {
    "an unknown option": (["--layers", "3"], "--layers"),
    "an unknown option with an equals sign": (["--layers=3"], "--layers"),
    "an abbreviated option": (["--bat", "3"], "--bat"),
    "a stray word": (["train"], "train"),
    "an option without its value": (["--batch"], "--batch"),
    "a batch that is no number": (["--batch", "many"], "--batch"),
    "a batch with a fraction": (["--batch", "1.5"], "--batch"),
    "a batch of zero": (["--batch", "0"], "--batch 0"),
    "a negative batch": (["--batch", "-2"], "--batch -2"),
    "a seq of zero": (["--seq", "0"], "--seq 0"),
    "a seq over the model's limit": (["--seq", "1025"], "1024"),
    "no steps": (["--steps", "0"], "--steps 0"),
    "a negative learning rate": (["--lr", "-0.1"], "--lr -0.1"),
    "a learning rate of zero": (["--lr", "0"], "--lr 0"),
    "a learning rate of nan": (["--lr", "nan"], "--lr nan"),
    "an infinite learning rate": (["--lr", "inf"], "--lr inf"),
    "an unknown dtype": (["--param-dtype", "float8"], "--param-dtype float8"),
    "a dtype with torch's prefix": (["--compute-dtype", "torch.float32"], "--compute-dtype"),
    "auto where a dtype has to be named": (["--param-dtype", "auto"], "--param-dtype auto"),
    "a switch spelled badly": (["--checkpointing", "ja"], "--checkpointing"),
    "another switch spelled badly": (["--reshard", "2"], "--reshard"),
    "a negative seed": (["--seed", "-1"], "--seed -1"),
    "a seed of 64 bits": (["--seed", str(2**63)], "--seed"),
    "a missing model folder": (["--model", "/no/such/folder"], "--model /no/such/folder"),
    "a missing weights folder": (["--weights", "/no/such/folder"], "--weights /no/such/folder"),
}


@pytest.mark.parametrize(("argv", "named"), BAD.values(), ids=BAD)
def test_a_bad_setting_is_refused_in_one_sentence_that_names_it(argv, named, home, is_one_sentence):
    with pytest.raises(UsageError) as caught:
        parse_settings(argv)
    assert named in str(caught.value)
    assert is_one_sentence(str(caught.value))


def test_an_unknown_setting_is_answered_with_the_known_ones(home):
    with pytest.raises(UsageError, match=r"--model, --weights, --batch.*--param-dtype.*--seed"):
        parse_settings(["--layers", "3"])


def test_no_option_gives_the_defaults(home):
    assert parse_settings([]) == Settings()


def test_settings_survive_the_way_to_a_command_line_and_back(home):
    asked = Settings(
        model="byte-llama-tied",
        weights="random",
        batch=3,
        seq=1024,
        steps=7,
        lr=1e-5,
        param_dtype="bfloat16",
        compute_dtype="float16",
        checkpointing=False,
        reshard=False,
        seed=2**63 - 1,
    )
    assert parse_settings(to_argv(asdict(asked))) == asked


def test_keywords_become_what_a_person_would_type():
    options = {"batch": 8, "param_dtype": "bfloat16", "checkpointing": False, "lr": 0.001}
    typed = ["--batch", "8", "--param-dtype", "bfloat16", "--checkpointing", "false", "--lr", "0.001"]
    assert to_argv(options) == typed


def test_a_scripts_own_defaults_give_way_to_the_command_line(home):
    settings = parse_settings(["--steps", "3"], steps=240, batch=16)
    assert (settings.steps, settings.batch) == (3, 16)


def test_a_file_of_arguments_beside_the_script_is_not_read(home, tmp_path, monkeypatch):
    # HfArgumentParser would read SCRIPT.args; a run's settings are on its command line alone.
    script = tmp_path / "script.py"
    script.with_suffix(".args").write_text("--steps 99")
    monkeypatch.setattr("sys.argv", [str(script)])
    assert parse_settings([]).steps == Settings().steps


def test_a_record_holds_dtypes_by_torchs_names():
    import torch

    described = describe(replace(Settings(), param_dtype=torch.bfloat16, compute_dtype=torch.float32))
    assert (described["param_dtype"], described["compute_dtype"]) == ("bfloat16", "float32")
    assert described == asdict(Settings(param_dtype="bfloat16", compute_dtype="float32"))


def test_a_vocabulary_too_small_for_bytes_is_refused_unless_the_folder_has_a_tokenizer(tmp_path, is_one_sentence):
    (tmp_path / "config.json").write_text('{"model_type": "llama", "vocab_size": 100}')
    with pytest.raises(UsageError, match="vocabulary of 100") as caught:
        Settings(model=str(tmp_path)).check()
    assert is_one_sentence(str(caught.value))
    (tmp_path / "tokenizer.json").write_text("{}")
    Settings(model=str(tmp_path)).check()
