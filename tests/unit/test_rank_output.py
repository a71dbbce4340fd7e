"""What is kept of a rank's output: the end of it, as text, whatever the rank printed."""

import os
import sys
import time

import pytest

from fsdp2_lab.lab.live.rank_output import tail, without_machine_paths
from fsdp2_lab.rank.summary import print_step, print_summary

SHOWN = {
    "plain": (b"one\ntwo\n", "one\ntwo"),
    "half a line": (b"one\ntw", "one\ntw"),
    "colours": (b"\x1b[1;31mred\x1b[0m \x1b[38;5;70mgreen\x1b[m\n", "red green"),
    "cursor and title": (b"\x1b]0;title\x07up\x1b[2K\x1b[1A\x1b[?25l\n", "up"),
    "a link": (b"\x1b]8;;http://x\x1b\\here\x1b]8;;\x1b\\\n", "here"),
    "a bar's last state": (b" 0%\r 50%\r100%\nnext\n", "100%\nnext"),
    "a bar that was wiped": (b"working\r       \r\n", "working"),
    "Windows lines": (b"one\r\ntwo\r\n", "one\ntwo"),
    "emoji": ("🙂 ✓\n".encode(), "🙂 ✓"),
    "not UTF-8": (b"caf\xe9\n", "caf\ufffd"),
    "binary": (b"\x00\x01\x02\xff\xfe\x80\x81 text\n", "\ufffd\ufffd\ufffd text"),
    "blank lines around": (b"\n\n  x\n\n\n", "  x"),
    "nothing": (b"", ""),
}


@pytest.mark.parametrize(("printed", "shown"), SHOWN.values(), ids=SHOWN)
def test_output_is_shown_as_a_terminal_would_leave_it(printed, shown, home):
    log = home / "rank0.stdout"
    log.write_bytes(printed)
    assert tail(log) == shown


def test_a_huge_log_is_read_at_its_end_only(home):
    log = home / "runs" / "train-1" / "logs" / "rank0.stdout"
    log.parent.mkdir(parents=True)
    with log.open("wb") as file:
        file.seek(4 * 2**30)  # sparse: takes no room
        file.write(b"\n" + b"".join(b"line %d\n" % i for i in range(1000)))
    start = time.perf_counter()
    lines = tail(log).splitlines()
    assert time.perf_counter() - start < 0.5
    assert len(lines) == 101
    assert lines[0].endswith("bytes in runs/train-1/logs/rank0.stdout") and lines[-1] == "line 999"


def test_one_endless_line_is_cut(home):
    log = home / "rank0.stdout"
    log.write_bytes(b"x" * 1_000_000)
    said, kept = tail(log).split("\n")
    assert said.startswith("… the end of 1,000,000 bytes") and kept == "x" * 20_000


@pytest.mark.parametrize("junk", [b"\x1b]" * 100_000, b"\x1b[" * 100_000, b"\x1b[0" * 70_000, b"\r" * 200_000])
def test_junk_does_not_hold_the_notebook_up(junk, home):
    (home / "rank0.stdout").write_bytes(junk)
    start = time.perf_counter()
    tail(home / "rank0.stdout")
    assert time.perf_counter() - start < 1.0


def test_paths_of_the_machine_are_not_named(home, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    text = f'File "{home}/launch/train.py", in {home}; {sys.prefix}/bin/x {tmp_path}/me/y, {home}s ./z file://{home}/t'
    shown = without_machine_paths(text)
    assert shown == f'File "launch/train.py", in .; python/bin/x ~/y, {home}s ./z file://t'


def test_what_the_record_prints_for_a_person_is_left_out(home, rank_record, capsys):
    record = rank_record(status="ok")
    print("before")
    for step in record.steps:
        print_step(step)
        print("between")
    print_summary(record, home / "runs" / "train-1")
    print("step 4 of my own")
    (home / "rank0.stdout").write_text(capsys.readouterr().out)
    kept = [line for line in tail(home / "rank0.stdout").splitlines() if line]
    assert kept == ["before", *["between"] * 4, "step 4 of my own"]


def test_secrets_are_replaced_by_their_names_also_where_the_cut_goes_through_one(home, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefgh")
    log = home / "rank0.stdout"
    log.write_text("my token is hf_abcdefgh, and my key 1234567890\n")
    assert tail(log, ["--api-key", "1234567890"]).strip() == "my token is [HF_TOKEN], and my key [api-key]"
    log.write_text("hf_abcdefgh" + "x" * 19_995)
    assert "abcdefgh" not in tail(log)


def test_a_pipe_or_a_link_in_a_logs_place_is_not_read(home):
    os.mkfifo(home / "pipe")
    (home / "other").write_text("not yours\n")
    (home / "link").symlink_to(home / "other")
    for name in ("pipe", "link", "."):
        with pytest.raises(OSError):
            tail(home / name)
