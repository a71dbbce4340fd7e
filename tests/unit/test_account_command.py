"""`fsdp2-lab account`: the settings of the scripts in, one text or one JSON object out, and torch left alone."""

import json
import subprocess
import sys

import pytest

import fsdp2_lab
from fsdp2_lab.cli import main
from fsdp2_lab.predict.account import account

JOB = ["llama-3.1-8b", "--ranks", "8", "--batch", "1", "--seq", "8192", "--device", "cpu"]
JOB += ["--compute-dtype", "bfloat16"]


def test_json_has_the_keys_of_every_prediction(capsys):
    assert main(["account", *JOB, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["how"] == "predicted" and said["parameters"] == 8_030_261_248
    assert {"peak_bytes", "step0_peak_bytes", "peak_at", "terms"} <= set(said)
    predicted = account("llama-3.1-8b", 8, batch=1, seq=8192, compute_dtype="bfloat16", device="cpu")
    assert said == json.loads(json.dumps(predicted.to_json()))


def test_the_text_has_every_term_with_its_formula_and_the_articles(capsys):
    assert main(["account", *JOB]) == 0
    text = capsys.readouterr().out
    assert "on each of 8 ranks, predicted (CPU)" in text and "peak in the loss and its gradient: logits" in text
    assert "32×4Pb/N" in text and "4bsv" in text and "16P/N + 2bshL + O" in text


def test_settings_that_decide_no_memory_are_taken(capsys):
    main(["account", *JOB, "--json"])
    plain = capsys.readouterr().out
    main(["account", *JOB, "--json", "--lr", "0.1", "--steps", "3", "--seed", "7", "--weights", "random"])
    assert capsys.readouterr().out == plain


@pytest.mark.parametrize(
    "words", [["--checkpointing", "false"], ["--checkpointing=false"], ["--checkpointing", "False"]]
)
def test_truths_are_read_as_the_scripts_read_them(words, capsys):
    assert main(["account", *JOB, *words, "--param_dtype", "bfloat16", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["peak_bytes"]
    job = dict(batch=1, seq=8192, compute_dtype="bfloat16", param_dtype="bfloat16", checkpointing=False, device="cpu")
    assert said == account("llama-3.1-8b", 8, **job).peak_bytes


@pytest.mark.parametrize(
    "words",
    [
        ["llama-9", "--ranks", "8"],
        ["gpt2", "--ranks", "0"],
        ["gpt2", "--ranks", "8", "--batch", "0"],
        ["gpt2", "--ranks", "8", "--seq", "2000"],
        ["gpt2", "--ranks", "8", "--device", "abacus"],
    ],
)
def test_bad_usage_is_exit_code_2_and_one_sentence(words, capsys, is_one_sentence):
    assert main(["account", *words]) == 2
    said = capsys.readouterr()
    assert is_one_sentence(said.err.strip()) and said.out == ""


@pytest.mark.parametrize(
    "words", [["gpt2"], ["gpt2", "--ranks", "2", "--checkpointing", "maybe"], ["gpt2", "--layers", "3"]]
)
def test_what_cannot_be_parsed_is_exit_code_2(words):
    with pytest.raises(SystemExit) as left:
        main(["account", *words])
    assert left.value.code == 2


def test_neither_torch_nor_transformers_is_imported():
    line = "from fsdp2_lab.cli import main; main(['account', 'gpt2', '--ranks', '2', '--json']); import sys; "
    line += "print(*{name.split('.')[0] for name in sys.modules}, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["parameters"] == 124_439_808
    assert not {"torch", "transformers", "pandas"} & set(done.stderr.split())


def test_the_package_hands_it_on():
    assert fsdp2_lab.account is account
