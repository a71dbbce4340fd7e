"""What a reader has answered is kept, shown and forgotten; a broken file costs no answer."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from fsdp2_lab.cli import main
from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.learn import progress, q02c, q02d, reset
from fsdp2_lab.learn.progress import Standing, note, standings


@pytest.fixture
def kept(home):
    return home / "fsdp2_lab_progress.json"


def test_answers_hints_and_solutions_are_kept(kept):
    q02c.check(None)
    assert not kept.exists()  # unanswered leaves no trace
    q02c.check(0.25)
    q02c.hint(1)
    assert standings()["q02c"] == Standing(right=False, tries=1, hints=1)
    q02c.check(7 / 16)
    q02c.check(0.25)
    q02d.solution()
    assert standings() == {"q02c": Standing(True, 3, 1), "q02d": Standing(None, 0, 0, True)}
    assert json.loads(kept.read_text())["schema_version"] == 1


def test_the_table_shows_every_exercise(kept):
    note("q02a", right=True)
    note("q02b", right=False, hints=2)
    text = repr(progress("02"))
    assert "02 ZeRO by hand" in text and "1 of 4" in text
    assert "q02a right (tries: 1)" in text and "q02b not yet (tries: 1, hints: 2)" in text and "q02c open" in text
    assert repr(progress()).count("\n") > 5
    html = progress("02")._repr_html_()
    assert html.count("<td") == 3 and "q02d open" in html
    with pytest.raises(UsageError, match="No exercises of chapter '77'"):
        progress("77")


def test_two_kernels_lose_nothing(kept):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: note(f"q02{'abcd'[number % 4]}", right=False), range(40)))
    assert [standings()[f"q02{letter}"].tries for letter in "abcd"] == [10] * 4


BROKEN = [
    "",
    "{",
    "[]",
    '{"schema_version": 2, "exercises": {}}',
    '{"schema_version": 1, "exercises": {"q02c": {"tries": "many"}}}',
    '{"schema_version": 1, "exercises": {"q02c": {"unknown": 1}}}',
    '{"schema_version": 1, "exercises": [' + "[" * 100_000,
]


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_file_costs_no_answer_and_is_left_alone(kept, text, is_one_sentence):
    kept.write_text(text)
    assert q02c.check(7 / 16).right
    assert kept.read_text() == text
    with pytest.raises(UsageError, match="--reset") as caught:
        progress()
    assert is_one_sentence(str(caught.value))
    with pytest.raises(UsageError):
        reset("02")
    reset()
    assert not kept.exists() and standings() == {}


def test_a_folder_that_is_gone_costs_no_answer(monkeypatch, tmp_path):
    monkeypatch.setenv("FSDP2_LAB_HOME", str(tmp_path / "gone"))
    assert q02c.check(7 / 16).right


def test_the_command_line(kept, capsys):
    note("q02a", right=True)
    note("q13a", right=True)
    assert main(["progress", "02"]) == 0 and "1 of 4" in capsys.readouterr().out
    assert main(["progress", "02", "--reset"]) == 0 and "0 of 4" in capsys.readouterr().out
    assert set(standings()) == {"q13a"}
    assert main(["progress", "99"]) == 2 and "expected one of 00" in capsys.readouterr().err
    assert main(["progress", "--reset"]) == 0 and standings() == {}
