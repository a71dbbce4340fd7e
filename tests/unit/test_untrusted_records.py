"""A record is written by a script, so by anybody: it is read as what it should be, or refused in one sentence."""

import json
import os

import pytest

from fsdp2_lab.contract import record as record_file
from fsdp2_lab.contract import untrusted
from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.record import rank_file, read_launch, read_record, read_records, write_launch, write_record
from fsdp2_lab.lab.runs import Run, runs

DEEP = "[" * 900 + "]" * 900
BAD_FIELDS = {
    "a rank that is text": ("rank", '"0"'),
    "a rank that is yes": ("rank", "false"),
    "a rank with a fraction": ("rank", "0.0"),
    "a rank below 0": ("rank", "-1"),
    "another rank": ("rank", "1"),
    "a rank beyond the world": ("world_size", "0"),
    "a huge number": ("pid", "1" + "0" * 400),
    "a number of too many digits for Python": ("pid", "1" + "0" * 5000),
    "a number too large for a table": ("pid", "9223372036854775808"),
    "a huge number that was noted": ("values", '{"a": 1' + "0" * 400 + "}"),
    "NaN that is no JSON": ("started_unix_seconds", "NaN"),
    "Infinity that is no JSON": ("values", '{"a": [-Infinity]}'),
    "a time that is text": ("started_unix_seconds", '"now"'),
    "a host that is a number": ("host", "3"),
    "arguments that are no text": ("argv", "[1]"),
    "arguments in one text": ("argv", '"launch/train.py"'),
    "settings that are a list": ("settings", "[]"),
    "an unknown status": ("status", '"fine"'),
    "a status that is a list": ("status", '["ok"]'),
    "stages that are no list": ("stages", "{}"),
    "a stage that is no object": ("stages", "[3]"),
    "a stage without a name": ("stages", "[{}]"),
    "a stage of text bytes": ("stages", '[{"name": "a", "peak_bytes": "many"}]'),
    "a stage with a field of its own": ("stages", '[{"name": "a", "colour": 1}]'),
    "a step whose loss is text": ("steps", '[{"step": 0, "loss": "low"}]'),
    "a step whose value is an object": ("steps", '[{"step": 0, "values": {"norm": {}}}]'),
    "a step that is not counted": ("steps", '[{"step": null}]'),
    "a span without a unit": ("steps", '[{"step": 0, "spans": [{"kind": "gathered"}]}]'),
    "a span that begins in text": (
        "steps",
        '[{"step": 0, "spans": [{"kind": "gathered", "unit": "a", "start_seconds": "0", "end_seconds": 1}]}]',
    ),
    "a span that is a list": ("steps", '[{"step": 0, "spans": [["gathered", "root", 0, 1]]}]'),
    "units by name": ("units", '{"root": {}}'),
    "a unit of text bytes": ("units", '[{"name": "a", "tensors": 1, "whole_bytes": "4", "held_bytes": 2}]'),
    "a shard with a row and a half": (
        "units",
        '[{"name": "a", "tensors": 1, "whole_bytes": 4, "held_bytes": 2, "shards": '
        '[{"name": "w", "first_row": 0.5, "rows": 1, "global_rows": 2, "whole_bytes": 4}]}]',
    ),
    "an error that is text": ("error", '"boom"'),
    "an error without a type": ("error", '{"rank": 0}'),
    "a field of its own": ("__class__", '"Run"'),
    "a deep nest": ("values", f'{{"a": {DEEP}}}'),
    "a nest deeper than Python's stack": ("values", f'{{"a": {"[" * 200_000 + "]" * 200_000}}}'),
    "a deep nest in a number's place": ("pid", DEEP),
    "a name twice": ("rank", '0, "rank": 0'),
}


@pytest.fixture
def forged(tmp_path, rank_record):
    """Writes rank 0's record with one field's JSON replaced."""

    def write(field: str, text: str):
        write_record(tmp_path, rank_record())
        data = json.loads(rank_file(tmp_path, 0).read_text()) | {field: "@"}
        rank_file(tmp_path, 0).write_text(json.dumps(data).replace(f'"{field}": "@"', f'"{field}": {text}'))
        return rank_file(tmp_path, 0)

    return write


@pytest.mark.parametrize(("field", "text"), BAD_FIELDS.values(), ids=BAD_FIELDS)
def test_a_field_that_is_not_what_it_should_be_is_refused_in_one_sentence(field, text, forged, is_one_sentence):
    path = forged(field, text)
    with pytest.raises(UsageError, match="is not a whole record") as caught:
        read_record(path)
    assert is_one_sentence(str(caught.value))


@pytest.mark.parametrize(
    ("field", "text"),
    [("ranks", '"2"'), ("status", '"done"'), ("exit_codes", '{"0": "none"}'), ("rss_peak_bytes", "[1]"), ("id", "1")],
)
def test_a_launch_record_is_checked_in_the_same_way(field, text, tmp_path, launch_record, is_one_sentence):
    write_launch(tmp_path, launch_record())
    path = tmp_path / "run.json"
    data = json.loads(path.read_text()) | {field: json.loads(text)}
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match="is not a whole record") as caught:
        read_launch(tmp_path)
    assert is_one_sentence(str(caught.value))


def test_a_record_that_was_cut_off_anywhere_is_not_read_as_a_whole_one(tmp_path, rank_record):
    write_record(tmp_path, rank_record())
    path = rank_file(tmp_path, 0)
    whole = path.read_bytes()
    for length in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:length])
        with pytest.raises(UsageError):
            read_record(path)


def test_text_that_no_terminal_can_print_is_mended(forged):
    record = read_record(forged("values", '{"\\udcff": ["\\ud800 \\ud83d\\ude00"]}'))
    assert record.values == {"?": ["? \U0001f600"]}
    assert read_record(forged("host", '"\\udcff"')).host == "?"


def test_a_file_that_is_too_large_is_refused_unread(tmp_path, monkeypatch, rank_record, is_one_sentence):
    write_record(tmp_path, rank_record())
    path = rank_file(tmp_path, 0)
    os.truncate(path, untrusted.MOST_BYTES + 1)  # sparse
    with pytest.raises(UsageError, match="more than 67,108,864 bytes") as caught:
        read_record(path)
    assert is_one_sentence(str(caught.value))


def test_a_record_that_no_reader_would_take_is_not_written(tmp_path, monkeypatch, rank_record):
    write_record(tmp_path, rank_record())
    monkeypatch.setattr(record_file, "MOST_BYTES", 5000)
    with pytest.raises(UsageError, match="note less"):
        write_record(tmp_path, rank_record(values={"a": "x" * 5000}))
    assert read_record(rank_file(tmp_path, 0)) == rank_record()


@pytest.mark.parametrize("kind", ["symlink", "dangling symlink", "fifo", "folder"])
@pytest.mark.parametrize("name", ["rank0.json", "run.json"])
def test_what_is_no_plain_file_is_refused_and_nobody_waits_for_it(kind, name, tmp_path, rank_record, launch_record):
    write_record(tmp_path / "other", rank_record())
    write_launch(tmp_path / "other", launch_record())
    path = tmp_path / "mine" / name
    path.parent.mkdir()
    {
        "symlink": lambda: path.symlink_to(tmp_path / "other" / name),
        "dangling symlink": lambda: path.symlink_to(tmp_path / "none"),
        "fifo": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }[kind]()
    with pytest.raises(UsageError, match="is not a whole record"):
        (read_launch if name == "run.json" else read_records)(path.parent)


def test_files_that_only_look_like_a_ranks_are_passed_by(tmp_path, rank_record):
    write_record(tmp_path, rank_record())
    for name in ("rank\u0663.json", "rank-1.json", "rank.json", "rank1.json.bak", "rank1 .json"):
        (tmp_path / name).write_text("{")
    assert len(read_records(tmp_path)) == 1
    (tmp_path / "rank00.json").write_bytes(rank_file(tmp_path, 0).read_bytes())
    with pytest.raises(UsageError, match=r"rank00\.json .*it says rank 0 of 2"):
        read_records(tmp_path)


def test_the_list_of_runs_shows_a_forged_one_as_unreadable(home, rank_record):
    write_record(home / "runs" / "good", rank_record())
    write_record(home / "runs" / "bad", rank_record())
    rank_file(home / "runs" / "bad", 0).write_text('{"schema": 1, "rank": ' + "[" * 100_000)
    assert dict(zip(runs()["id"], runs()["status"], strict=True)) == {"good": "ok", "bad": "unreadable"}


def test_a_run_shows_itself_whatever_a_script_left_out(tmp_path, forged):
    path = forged("steps", '[{"step": 0}, {"step": 1, "loss": "nan", "seconds": "inf"}]')
    run = Run(path.parent)
    assert repr(run) and run._repr_html_() and run.step_seconds and len(run.frame)
    path = forged("stages", '[{"name": "<script>"}]')
    assert "<script>" not in Run(path.parent)._repr_html_()
