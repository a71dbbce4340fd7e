"""The magics, run in a real IPython shell."""

import pytest
from IPython.core.interactiveshell import InteractiveShell

from fsdp2_lab.contract.errors import StageSyntaxError, UsageError


@pytest.fixture
def shell(home, monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    assert shell.run_cell("%load_ext fsdp2_lab").success
    yield shell
    InteractiveShell.clear_instance()


def test_a_stage_cell_writes_its_script_and_says_so(shell, home, capsys):
    assert shell.run_cell('%%stage first\n"""Do."""\nx = 1\n').success
    assert '"""Do."""\nx = 1\n' in (home / "launch" / "first.py").read_text()
    assert "launch/first.py: first (" in capsys.readouterr().out


def test_a_stage_cell_is_not_run_in_the_notebook(shell):
    shell.run_cell("%%stage first\nx_of_the_cell = 1\n")
    assert "x_of_the_cell" not in shell.user_ns


def test_after_names_the_chain(shell, capsys):
    shell.run_cell("%%stage first\nx = 1\n")
    assert shell.run_cell("%%stage second --after first\ny = x\n").success
    assert "launch/second.py: first → second (" in capsys.readouterr().out


def test_a_syntax_error_is_shown_in_the_cell_and_nothing_is_written(shell, home, capsys):
    result = shell.run_cell("%%stage first\ndef (\n")
    assert isinstance(result.error_in_exec, StageSyntaxError)
    shown = "".join(capsys.readouterr()).splitlines()
    assert shown[0] == "StageSyntaxError: invalid syntax (<stage first>, line 1)"
    assert [line.strip() for line in shown[1:3]] == ["def (", "^"]
    assert not (home / "launch").exists()


def test_a_mistake_is_shown_as_one_line_without_our_frames(shell, home, capsys):
    result = shell.run_cell("%%stage second --after first\ny = x\n")
    assert isinstance(result.error_in_exec, UsageError)
    shown = "".join(capsys.readouterr()).strip()
    assert shown.startswith("UsageError: Stage 'second' comes after 'first'")
    assert "\n" not in shown
    assert not (home / "launch").exists()


@pytest.mark.parametrize("line", ["", "../first", "First", "first --before x", "first second"])
def test_a_bad_stage_line_writes_nothing(line, shell, home):
    assert not shell.run_cell(f"%%stage {line}\nx = 1\n").success
    assert not (home / "launch").exists()
    assert list(home.iterdir()) == []


def test_the_chapter_is_named_in_the_script(shell, home, capsys):
    assert shell.run_cell("%chapter 05_sharding").success
    assert "ranks by default on" in capsys.readouterr().out
    shell.run_cell("%%stage first\nx = 1\n")
    text = (home / "launch" / "first.py").read_text()
    assert "Written by notebooks/05_sharding.ipynb:" in text
    assert 'record.stage("first")  # notebooks/05_sharding.ipynb\n' in text


def test_a_chapter_run_twice_writes_the_same_script(shell, home):
    shell.run_cell("%chapter 05_sharding")
    shell.run_cell("%%stage first\nx = 1\n")
    before = (home / "launch" / "first.py").read_bytes()
    assert shell.run_cell("%%stage first\nx = 1\n").success
    assert (home / "launch" / "first.py").read_bytes() == before


def test_without_a_chapter_jupyter_says_which_notebook_it_is(shell, home, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/own.ipynb")
    shell.run_cell("%%stage first\nx = 1\n")
    assert "Written by own.ipynb:" in (home / "launch" / "first.py").read_text()


@pytest.mark.parametrize("name", ["", "../05", "05 sharding", "05.ipynb", "ch\u0430pter"])
def test_a_chapter_that_is_no_file_name_is_refused(name, shell, is_one_sentence):
    result = shell.run_cell(f"%chapter {name}")
    assert isinstance(result.error_in_exec, UsageError)
    assert is_one_sentence(str(result.error_in_exec))


def test_a_scripts_own_defaults_stand_on_the_stage_line(shell, home):
    assert shell.run_cell("%%stage long --defaults steps=240 lr=0.003 model=byte-llama-tied\nx = 1\n").success
    text = (home / "launch" / "long.py").read_text()
    assert "settings = read_settings(steps=240, lr=0.003, model='byte-llama-tied')" in text


@pytest.mark.parametrize("default", ["steps", "=3", "a-b=3", "no_such_setting=3", "steps=0"])
def test_a_default_that_no_run_could_use_is_refused_in_the_cell(default, shell, home):
    result = shell.run_cell(f"%%stage long --defaults {default}\nx = 1\n")
    assert isinstance(result.error_in_exec, UsageError)
    assert not (home / "launch").exists()
