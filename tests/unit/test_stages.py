"""A stage cell becomes a whole script; a cell that cannot become one writes nothing."""

import ast
import difflib
import os
from itertools import pairwise

import pytest

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.lab.stages import Stage, sections

FIRST = '"""Count to one."""\nimport os\n\none = 1  # a comment stays\n'
SECOND = '"""Count to two."""\n\ntwo = one + 1\n'
NOTEBOOK = "notebooks/03_counting.ipynb"


@pytest.fixture
def two_stages(home):
    """The scripts of two stages, the second built on the first."""
    first = Stage("first", FIRST, None, NOTEBOOK).write()
    return first, Stage("second", SECOND, "first", "notebooks/04_more.ipynb").write()


def test_a_script_begins_with_what_it_does_how_to_start_it_and_where_it_comes_from(two_stages):
    text = two_stages[1].read_text()
    assert text.splitlines()[:5] == [
        '"""Count to two.',
        "",
        "    torchrun --standalone --nproc_per_node=2 launch/second.py",
        "",
        "Written by notebooks/04_more.ipynb: change the cell there and run it, and this file follows.",
    ]


def test_a_script_holds_each_cell_unchanged_in_a_section_of_its_own(two_stages):
    text = two_stages[1].read_text()
    assert sections(text) == ["first", "second"]
    assert f'record.stage("first")  # {NOTEBOOK}\n{FIRST}\n' in text
    assert text.endswith(f'record.stage("second")  # notebooks/04_more.ipynb\n{SECOND.rstrip()}\n')


def test_a_script_differs_from_the_one_before_by_one_section_and_its_header(two_stages):
    before, after = (path.read_text().splitlines() for path in two_stages)
    changes = [code for code in difflib.SequenceMatcher(None, before, after).get_opcodes() if code[0] != "equal"]
    header_end = before.index("from fsdp2_lab.rank import open_record, read_settings")
    inside = [code for code in changes if code[1] >= header_end]
    assert len(inside) == 1
    kind, old_start, _, new_start, new_end = inside[0]
    assert (kind, old_start) == ("insert", len(before))
    assert [line for line in after[new_start:new_end] if line] == [
        'record.stage("second")  # notebooks/04_more.ipynb',
        *(line for line in SECOND.splitlines() if line),
    ]


def test_the_scripts_of_the_series_each_add_one_section(checkout):
    launch = checkout / "launch"
    chain = sections((launch / "train.py").read_text())
    assert len(chain) > 1
    for name, following in pairwise(chain):
        mark = f'record.stage("{chain[0]}")'
        before, after = ((launch / f"{stage}.py").read_text() for stage in (name, following))
        before, after = before[before.index(mark) :], after[after.index(mark) :]
        assert after.startswith(before.rstrip("\n")), f"{following}.py changes what {name}.py says"
        assert sections(after[len(before) :]) == [following]


def test_defaults_are_read_by_the_script_itself(home):
    path = Stage("long", "x = 1", defaults=(("steps", 240), ("model", "byte-llama-tied"))).write()
    assert "settings = read_settings(steps=240, model='byte-llama-tied')" in path.read_text()


def test_writing_a_stage_again_gives_the_same_bytes(two_stages):
    before = [path.read_bytes() for path in two_stages]
    Stage("first", FIRST, None, NOTEBOOK).write()
    Stage("second", SECOND, "first", "notebooks/04_more.ipynb").write()
    assert [path.read_bytes() for path in two_stages] == before


def test_a_changed_cell_replaces_its_script(home):
    Stage("first", FIRST, None, NOTEBOOK).write()
    path = Stage("first", FIRST.replace("one = 1", "one = 1.0"), None, NOTEBOOK).write()
    assert "one = 1.0" in path.read_text()


def test_a_cell_without_a_docstring_is_named_by_its_stage(home):
    assert Stage("first", "x = 1").write().read_text().startswith('"""The stage `first`.\n')


@pytest.mark.parametrize("cell", ["def (", "x = = 1", "  x = 1", "!ls", "%time x = 1", "return 3", "x = '\n'"])
def test_a_cell_that_is_no_python_writes_nothing(cell, home):
    with pytest.raises(SyntaxError):
        Stage("first", cell).write()
    assert not (home / "launch").exists()


def test_a_syntax_error_leaves_the_script_of_before(two_stages):
    before = two_stages[0].read_bytes()
    with pytest.raises(SyntaxError):
        Stage("first", "def (", None, NOTEBOOK).write()
    assert two_stages[0].read_bytes() == before


def test_a_stage_after_one_that_is_not_written_says_which_cell_to_run(home, is_one_sentence):
    with pytest.raises(UsageError, match=r"'second'.*'first'.*not written yet") as caught:
        Stage("second", SECOND, "first").write()
    assert is_one_sentence(str(caught.value))
    assert not (home / "launch").exists()


@pytest.mark.parametrize("after", ["..", "../first", "First", ""])
def test_the_stage_before_needs_a_good_name_too(after, home):
    with pytest.raises(UsageError):
        Stage("second", SECOND, after).write()


def test_a_stage_of_another_notebook_is_left_alone(two_stages, is_one_sentence):
    before = two_stages[0].read_bytes()
    with pytest.raises(UsageError, match=f"belongs to {NOTEBOOK};") as caught:
        Stage("first", "mine = 1", None, "notebooks/09_other.ipynb").write()
    assert is_one_sentence(str(caught.value))
    assert two_stages[0].read_bytes() == before


def test_a_script_that_somebody_wrote_by_hand_is_left_alone(home, is_one_sentence):
    (home / "launch").mkdir()
    (home / "launch" / "mine.py").write_text("print('by hand')\n")
    with pytest.raises(UsageError, match=r"launch/mine\.py was not written by a stage cell") as caught:
        Stage("mine", "x = 1").write()
    assert is_one_sentence(str(caught.value))
    assert (home / "launch" / "mine.py").read_text() == "print('by hand')\n"


def test_a_stage_after_a_script_written_by_hand_is_refused(home):
    (home / "launch").mkdir()
    (home / "launch" / "mine.py").write_text("print('by hand')\n")
    with pytest.raises(UsageError, match="has no section"):
        Stage("second", SECOND, "mine").write()


@pytest.mark.parametrize("after", ["first", "second"])
def test_a_name_stands_only_once_in_a_chain(after, two_stages):
    with pytest.raises(UsageError, match="already contains it"):
        Stage("first", FIRST, after, NOTEBOOK).write()


@pytest.mark.parametrize("name", ["random", "json", "torch", "transformers", "fsdp2_lab"])
def test_a_name_that_would_hide_a_module_is_refused(name, home):
    # Python puts launch/ first on the path of every script in it: launch/random.py would be everybody's `random`.
    with pytest.raises(UsageError):
        Stage(name, "x = 1").write()


@pytest.mark.parametrize(
    "docstring",
    ['"""Say \\"yes\\"."""', "'''Three \"\"\" of them.'''", 'r"""A path like C:\\new\\x."""', '"""Two.\n\nParts.\n"""'],
    ids=["quotes", "triple quotes", "backslashes", "paragraphs"],
)
def test_any_docstring_gives_a_script_that_says_the_same(docstring, home):
    text = Stage("first", f"{docstring}\nx = 1\n").write().read_text()
    said = ast.get_docstring(ast.parse(f"{docstring}\n"))
    assert ast.get_docstring(ast.parse(text)).startswith(said)
    assert f"\n{docstring}\nx = 1\n" in text


def test_an_unwritable_launch_folder_is_named(home, is_one_sentence):
    (home / "launch").write_text("a file where a folder should be")
    with pytest.raises(UsageError) as caught:
        Stage("first", FIRST).write()
    assert str(home / "launch" / "first.py") in str(caught.value)
    assert is_one_sentence(str(caught.value))


def test_a_changed_section_changes_every_script_that_contains_it_and_no_other(two_stages, home):
    third = Stage("third", "three = two + 1\n", "second", NOTEBOOK).write()
    other = Stage("other", "x = 1\n", None, NOTEBOOK).write()
    before = other.read_text()
    stage = Stage("first", FIRST.replace("one = 1", "one = 10"), None, NOTEBOOK)
    stage.write()
    assert stage.update_later_scripts() == [two_stages[1], third]
    for script in (two_stages[1], third):
        assert "one = 10  # a comment stays" in script.read_text()
    assert sections(third.read_text()) == ["first", "second", "third"]
    assert other.read_text() == before
    assert stage.update_later_scripts() == []  # nothing left to do


def test_words_of_ours_inside_a_cells_strings_are_not_taken_for_ours(home):
    cell = '''"""Talk about marks.

record.stage("phantom")  # notebooks/00_none.ipynb
Written by nobody: change the cell there and run it.
"""
text = """
record.stage("ghost")  # notebooks/00_none.ipynb
"""
'''
    first = Stage("first", cell, None, NOTEBOOK)
    first.write()
    assert first.write() == home / "launch" / "first.py"  # its own notebook still owns it
    second = Stage("second", SECOND.replace("one", "len(text)"), "first", NOTEBOOK).write()
    assert sections(second.read_text()) == ["first", "second"]
    with pytest.raises(UsageError, match="belongs to notebooks/03_counting"):
        Stage("first", cell, None, "notebooks/09_other.ipynb").write()


def test_a_cell_with_windows_line_ends_gives_the_same_script(home):
    plain = Stage("first", FIRST, None, NOTEBOOK).write().read_bytes()
    assert Stage("first", FIRST.replace("\n", "\r\n"), None, NOTEBOOK).write().read_bytes() == plain


def test_code_that_must_stand_first_is_refused_in_one_sentence(home):
    with pytest.raises(UsageError, match="cannot follow other code"):
        Stage("first", "from __future__ import annotations\n", None, NOTEBOOK).write()
    assert not (home / "launch").exists()


def test_a_notebook_without_a_name_neither_owns_nor_is_locked_out(home):
    Stage("first", FIRST).write()
    Stage("first", FIRST, None, NOTEBOOK).write()
    Stage("first", FIRST).write()


def test_a_name_that_would_hide_a_module_installed_in_place_is_refused(home, tmp_path, monkeypatch):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "somebodys.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    with pytest.raises(UsageError, match="would hide"):
        Stage("somebodys", "x = 1").write()
    monkeypatch.chdir(tmp_path / "src")  # a module beside the notebook is no matter: scripts do not see it
    assert Stage("somebodys", "x = 1").write().exists()


@pytest.mark.parametrize("kind", ["outside", "inside", "dangling", "fifo", "folder"])
def test_a_script_that_is_a_link_or_no_file_is_left_alone(kind, home, tmp_path, is_one_sentence):
    target = (home if kind == "inside" else tmp_path) / "target.py"
    path = home / "launch" / "first.py"
    path.parent.mkdir()
    if kind in ("outside", "inside"):
        target.write_text("mine")
    {"fifo": lambda: os.mkfifo(path), "folder": path.mkdir}.get(kind, lambda: path.symlink_to(target))()
    with pytest.raises(UsageError, match=r"launch/first\.py is a link or no file") as caught:
        Stage("first", FIRST, None, NOTEBOOK).write()
    assert is_one_sentence(str(caught.value))
    assert target.exists() == (kind in ("outside", "inside")) and (not target.exists() or target.read_text() == "mine")


def test_a_changed_section_is_not_written_through_a_link(two_stages, home, tmp_path):
    outside = tmp_path / "second.py"
    two_stages[1].rename(outside)
    two_stages[1].symlink_to(outside)
    before = outside.read_text()
    stage = Stage("first", FIRST.replace("one = 1", "one = 10"), None, NOTEBOOK)
    stage.write()
    assert stage.update_later_scripts() == []
    assert two_stages[1].is_symlink() and outside.read_text() == before


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b"x = '\0'", b"(" * 5000 + b"Written by a: change the cell there"],
    ids=["no UTF-8", "NUL", "deep"],
)
def test_any_file_beside_the_scripts_does_no_harm(content, two_stages, home):
    (home / "launch" / "odd.py").write_bytes(content)
    os.mkfifo(home / "launch" / "pipe.py")
    stage = Stage("first", FIRST.replace("one = 1", "one = 10"), None, NOTEBOOK)
    stage.write()
    assert stage.update_later_scripts() == [two_stages[1]]
    with pytest.raises(UsageError, match="not written by a stage cell"):
        Stage("odd", "x = 1").write()
    assert (home / "launch" / "odd.py").read_bytes() == content
