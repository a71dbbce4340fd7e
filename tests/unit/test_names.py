"""A name becomes a path only once it is safe as one."""

import pytest

from fsdp2_lab.contract import workspace
from fsdp2_lab.contract.errors import UsageError

BAD_STAGES = {
    "empty": "",
    "dot": ".",
    "dots": "..",
    "slash": "a/b",
    "climbing": "../a",
    "absolute": "/etc/passwd",
    "backslash": "a\\b",
    "nul": "a\0b",
    "newline at the end": "a\n",
    "space": "a b",
    "extension": "a.py",
    "41 letters": "a" * 41,
    "300 letters": "a" * 300,
    "upper case": "Shard",
    "digit first": "1a",
    "underscore first": "_a",
    "hyphen": "a-b",
    "Cyrillic look-alike": "\u0455hard",  # the first letter is no Latin s
    "full-width look-alike": "\uff53hard",
    "accent": "r\u00e9gion",
    "superscript digit": "a\u00b2",
    "a device": "con",
    "a numbered device": "com1",
    "a list": ["shard"],
    "nothing": None,
}
BAD_RUN_IDS = {
    "empty": "",
    "dots": "..",
    "slash": "a/b",
    "climbing": "../checkpoints",
    "nul": "a\0b",
    "newline at the end": "a\n",
    "hidden": ".a",
    "option": "-a",
    "300 letters": "a" * 300,
    "look-alike": "tr\u0430in-1",  # a Cyrillic letter in it
}


@pytest.mark.parametrize("name", BAD_STAGES.values(), ids=BAD_STAGES)
def test_a_bad_stage_name_is_refused_in_one_sentence(name, home, is_one_sentence):
    with pytest.raises(UsageError) as caught:
        workspace.script_path(name)
    assert is_one_sentence(str(caught.value))


@pytest.mark.parametrize("name", ["a", "load_2", "a" * 40])
def test_a_good_stage_name_is_a_script_in_launch(name, home):
    assert workspace.script_path(name) == home / "launch" / f"{name}.py"


@pytest.mark.parametrize("run_id", BAD_RUN_IDS.values(), ids=BAD_RUN_IDS)
def test_a_bad_run_id_is_refused_in_one_sentence(run_id, home, is_one_sentence):
    with pytest.raises(UsageError) as caught:
        workspace.run_path(run_id)
    assert is_one_sentence(str(caught.value))


def test_a_good_run_id_is_a_folder_in_runs(home):
    assert workspace.run_path("train-20260101-120000-ab12") == home / "runs" / "train-20260101-120000-ab12"
