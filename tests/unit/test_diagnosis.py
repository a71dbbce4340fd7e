"""Who failed first: from torchrun's own report, the ranks' logs and what they recorded."""

import pytest

from fsdp2_lab.contract.record import RankError
from fsdp2_lab.lab.diagnosis import exit_codes, find_error

REPORT = """\
W1130 19:30:00.000000 4000 torch/distributed/elastic/multiprocessing/api.py] Sending process 4007 closing signal SIGTERM
E1130 19:30:00.000000 4000 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: 1)
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
launch/train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-30_19:30:01
  host      : here
  rank      : 0 (local_rank: 0)
  exitcode  : -9 (pid: 4001)  (SIGKILL)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4001
[2]:
  time      : 2026-11-30_19:30:01
  host      : here
  rank      : 7 (local_rank: 7)
  exitcode  : -15 (pid: 4007)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 4007
[3]:
  time      : 2026-11-30_19:30:01
  host      : here
  rank      : 8 (local_rank: 8)
  exitcode  : -15 (pid: 4008)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 4008
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_19:30:00
  host      : here
  rank      : 12 (local_rank: 12)
  exitcode  : 3 (pid: 4002) 
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
CLOSED = "[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:12345"


@pytest.fixture
def failed(rank_record):
    """Makes the record of a rank that raised."""

    def make(rank: int, message: str, unix_seconds: float):
        error = RankError(rank, "RuntimeError", message, "Traceback …", "train", unix_seconds)
        return rank_record(rank, status="failed", error=error)

    return make


def test_exit_codes_are_read_from_torchruns_report(tmp_path):
    (tmp_path / "torchrun.log").write_text(REPORT)
    codes = exit_codes(tmp_path / "torchrun.log", 13, 1)
    assert (codes["0"], codes["12"]) == (-9, 3)
    assert [codes[str(rank)] for rank in (1, 2, 3, 11)] == [None] * 4


def test_a_rank_that_torchrun_ended_because_another_failed_has_no_exit_code(tmp_path):
    (tmp_path / "torchrun.log").write_text(REPORT)
    codes = exit_codes(tmp_path / "torchrun.log", 13, 1)
    assert codes["7"] is None
    assert codes["8"] == -15  # somebody else's signal


def test_all_ranks_ended_well_where_torchrun_did(tmp_path):
    assert exit_codes(tmp_path / "no.log", 2, 0) == {"0": 0, "1": 0}


def test_a_launch_cut_off_has_no_exit_codes(tmp_path):
    assert exit_codes(tmp_path / "no.log", 2, None) == {"0": None, "1": None}


def test_the_earliest_error_is_the_cause(failed, tmp_path):
    records = [failed(0, "later", 20.0), failed(1, "earlier", 10.0)]
    assert find_error(records, {"0": 1, "1": 1}, tmp_path).message == "earlier"


def test_a_lost_connection_is_a_consequence_even_when_it_is_seen_first(failed, tmp_path):
    records = [failed(0, CLOSED, 10.0), failed(1, "boom", 20.0)]
    assert find_error(records, {"0": 1, "1": 1}, tmp_path).rank == 1


def test_lost_connections_alone_still_give_an_error(failed, tmp_path):
    records = [failed(0, CLOSED, 20.0), failed(1, CLOSED, 10.0)]
    assert find_error(records, {"0": 1, "1": 1}, tmp_path).rank == 1


def test_a_rank_ended_by_a_signal_goes_before_what_the_others_saw(failed, tmp_path):
    error = find_error([failed(0, CLOSED, 10.0)], {"0": 1, "1": -9}, tmp_path)
    assert (error.rank, error.type, error.message) == (1, "SIGKILL", "rank 1 was ended by SIGKILL")


def test_a_signal_without_a_name_is_no_trouble(tmp_path):
    error = find_error([], {"0": -35}, tmp_path)  # a real-time signal
    assert error.rank == 0 and "35" in error.message


def test_a_bare_exit_code_is_told(tmp_path):
    (tmp_path / "rank1.stderr").write_text("about to leave\n")
    error = find_error([], {"0": None, "1": 3}, tmp_path)
    assert (error.rank, error.type, error.message) == (1, "SystemExit", "rank 1 ended with exit code 3")
    assert "about to leave" in error.traceback


def test_an_error_is_read_from_the_log_of_a_script_without_records(tmp_path):
    (tmp_path / "rank0.stderr").write_text(
        "a warning: not the error\n"
        "Traceback (most recent call last):\n"
        '  File "own.py", line 3, in <module>\n'
        "    int('x')\n"
        "ValueError: invalid literal: 'x'\n"
        "\n"
        "During handling of the above exception, another exception occurred:\n"
        "\n"
        "Traceback (most recent call last):\n"
        '  File "own.py", line 5, in <module>\n'
        "    raise errors.OwnError('no: number')\n"
        "own.errors.OwnError: no: number\n"
        "said after the traceback\n"
    )
    error = find_error([], {"0": 1}, tmp_path)
    assert (error.type, error.message) == ("OwnError", "no: number")
    assert error.traceback.startswith("Traceback") and error.traceback.endswith("OwnError: no: number\n")


def test_an_exception_without_a_message_is_read_too(tmp_path):
    (tmp_path / "rank0.stderr").write_text(
        'Traceback (most recent call last):\n  File "own.py", line 1, in <module>\nAssertionError\n'
    )
    error = find_error([], {"0": 1}, tmp_path)
    assert (error.type, error.message) == ("AssertionError", "")


def test_nobody_failed_where_nobody_says_so(rank_record, tmp_path):
    assert find_error([rank_record()], {"0": None, "1": None}, tmp_path) is None
