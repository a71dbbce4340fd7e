"""Tokens of the environment and of the command line reach neither a record nor an error."""

import pytest

from fsdp2_lab.contract import secrets
from fsdp2_lab.contract.errors import StageFailed, UsageError
from fsdp2_lab.contract.record import RankError, rank_file, write_launch, write_record
from fsdp2_lab.contract.settings import parse_settings
from fsdp2_lab.lab.runs import Run

TOKEN = "hf_aBcDeFgHiJkLmNoP"
NAMES = """HF_TOKEN HUGGING_FACE_HUB_TOKEN GITHUB_TOKEN WANDB_API_KEY AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    AWS_SESSION_TOKEN CLIENT_SECRET SECRET_SAUCE DB_PASSWORD PASSWORD_OF_MINE my_token TOKEN"""


@pytest.fixture
def token(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return TOKEN


@pytest.mark.parametrize("name", NAMES.split())
def test_a_variable_with_a_secrets_name_is_shown_by_its_name(name, monkeypatch):
    monkeypatch.setenv(name, "s3cr3t value")
    assert secrets.redact("before s3cr3t value after") == f"before [{name}] after"


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "KEYBOARD", "MONKEY", "AWS_REGION", "PATHS"])
def test_other_variables_are_left_alone(name, monkeypatch):
    monkeypatch.setenv(name, "a plain value")
    assert secrets.redact("a plain value") == "a plain value"


def test_a_value_that_stands_in_ordinary_words_is_left_alone(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "none")
    assert secrets.redact("none of them") == "none of them"


def test_a_longer_secret_goes_before_one_that_it_begins_with(monkeypatch):
    monkeypatch.setenv("A_TOKEN", "12345678")
    monkeypatch.setenv("B_TOKEN", "1234567890")
    assert secrets.redact("1234567890 12345678") == "[B_TOKEN] [A_TOKEN]"


@pytest.mark.parametrize("value", ["two\nlines of it", "it's a secret", "a+b/c=d&e f", "back\\slash .*"])
def test_a_secret_is_found_as_python_a_shell_and_a_url_write_it(value, monkeypatch):
    import shlex
    from urllib.parse import quote

    monkeypatch.setenv("MY_SECRET", value)
    for text in (value, repr(value), shlex.join(["run", value]), f"https://me:{quote(value, safe='')}@host/"):
        assert "[MY_SECRET]" in secrets.redact(text)
        assert value not in secrets.redact(text)


@pytest.mark.parametrize("argv", [[f"--hf-token={TOKEN}"], ["--hf_token", TOKEN], ["-x", "--api-key", TOKEN, "--y"]])
def test_an_option_with_a_secrets_name_is_one(argv):
    said = secrets.redact_json([*argv, {"a": f"x{TOKEN}"}], argv)
    assert TOKEN not in str(said) and len(said) == len(argv) + 1


@pytest.mark.parametrize("argv", [["--tokenizer", TOKEN], ["--num-key-value-heads", TOKEN], ["--token", "--steps"]])
def test_other_options_are_left_alone(argv):
    assert secrets.redact_json(argv, argv) == argv


def test_without_secrets_nothing_is_copied(monkeypatch):
    for name in list(secrets.os.environ):
        monkeypatch.delenv(name)
    value = {"a": ["b"]}
    assert secrets.redact_json(value) is value


def test_no_record_holds_a_secret_and_numbers_stay_numbers(token, tmp_path, rank_record, launch_record, monkeypatch):
    monkeypatch.setenv("NUMBER_KEY", "209715200")  # 200 MiB, which stages of the record have
    error = RankError(0, "OSError", f"401 for {token}", f"Traceback …\n  login({token!r})\n")
    argv = ["own.py", f"--auth={token}", "--api-key", "another secret"]
    values = {"url": f"https://{token}@host", "nested": [{"a": token}], token: 1, "again": "another secret"}
    write_record(tmp_path, rank_record(argv=argv, values=values, settings={"auth": token}, error=error))
    command = f"torchrun own.py --auth={token} --api-key 'another secret'"
    write_launch(tmp_path, launch_record(command=command, error=error, status="failed"))
    for path in (rank_file(tmp_path, 0), tmp_path / "run.json"):
        text = path.read_text()
        assert token not in text and "another secret" not in text
        assert "[HF_TOKEN]" in text and "[api-key]" in text
    assert Run(tmp_path).records[0].stages[0].rss_bytes == 209715200


def test_no_error_says_a_secret_even_of_an_older_record(token, tmp_path, rank_record, launch_record, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    error = RankError(0, "OSError", "401", f"Traceback …\n  login({token!r})\n")
    write_launch(tmp_path, launch_record(command=f"torchrun a.py {token}", error=error, status="failed"))
    assert token in Run(tmp_path).failure()
    monkeypatch.setenv("HF_TOKEN", token)
    assert token not in Run(tmp_path).failure() and "[HF_TOKEN]" in Run(tmp_path).failure()
    assert str(UsageError(f"no {token}.")) == "no [HF_TOKEN]."
    assert token not in str(StageFailed(f"no {token}", None))


def test_an_unknown_setting_is_named_without_its_value():
    with pytest.raises(UsageError, match="'--hf-token'") as caught:
        parse_settings([f"--hf-token={TOKEN}"])
    assert TOKEN not in str(caught.value)
