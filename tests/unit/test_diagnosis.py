"""Who failed first: from records, ranks' last words, and how torchrun's agent saw them end."""

import os

import pytest

from fsdp2_lab.contract.places import Exit, Place
from fsdp2_lab.contract.record import RankError, StageRow
from fsdp2_lab.lab.verdict.diagnosis import (
    LEFT_EARLY,
    exit_codes,
    find_errors,
    is_consequence,
    last_lines,
    left_early,
    waited_too_long,
)

CLOSED = "[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:12345"
TRACE = 'Traceback …\n  File "torch/distributed/distributed_c10d.py", line 1, in barrier\n'
WAITED = "Timed out waiting 16000ms for recv operation to complete"


@pytest.fixture
def failed(rank_record):
    """Makes the records of ranks that raised: rank → (message, time)."""

    def make(errors: dict[int, tuple[str, float]]):
        return {
            rank: rank_record(
                rank,
                status="failed",
                error=RankError(rank, "RuntimeError", message, TRACE, "train", None, None, seconds),
            )
            for rank, (message, seconds) in errors.items()
        }

    return make


def first(records, exits, logs, places=()):
    return find_errors(records, dict(places), exits, logs)[0]


def test_a_rank_that_was_told_to_end_has_no_exit_code_and_another_has():
    exits = {"0": Exit(-15, 9.0, asked=True), "1": Exit(3, 8.0, asked=False), "2": Exit(-15, 8.0, asked=False)}
    assert exit_codes(exits, 4, 1) == {"0": None, "1": 3, "2": -15, "3": None}


def test_all_ranks_ended_well_where_torchrun_did():
    assert exit_codes({}, 2, 0) == {"0": 0, "1": 0}


def test_a_launch_cut_off_has_no_exit_codes():
    assert exit_codes({}, 2, None) == {"0": None, "1": None}


def test_the_earliest_error_is_the_cause(failed, tmp_path):
    assert first(failed({0: ("later", 20.0), 1: ("earlier", 10.0)}), {}, tmp_path).message == "earlier"


@pytest.mark.parametrize("message", [CLOSED, WAITED, "Broken pipe"])
def test_what_follows_from_a_peers_end_is_no_cause_even_when_it_is_seen_first(message, failed, tmp_path):
    errors = find_errors(failed({0: (message, 10.0), 1: ("boom", 20.0)}), {}, {}, tmp_path)
    assert [error.rank for error in errors] == [1, 0]


def test_a_connection_that_is_no_groups_is_a_cause(rank_record, tmp_path):
    # As of a data loader or a download.
    trace = 'Traceback …\n  File "urllib3/connection.py", line 1, in connect\n'
    own = RankError(1, "ConnectionError", "Connection refused", trace, "train", monotonic_seconds=20.0)
    lost = RankError(0, "RuntimeError", CLOSED, TRACE, "train", monotonic_seconds=10.0)
    records = {error.rank: rank_record(error.rank, status="failed", error=error) for error in (lost, own)}
    assert first(records, {}, tmp_path) is own


def test_lost_connections_alone_still_give_an_error(failed, tmp_path):
    assert first(failed({0: (CLOSED, 20.0), 1: (CLOSED, 10.0)}), {}, tmp_path).rank == 1


def test_a_signal_goes_before_what_the_others_saw(failed, tmp_path):
    error = first(failed({0: (CLOSED, 10.0)}), {"1": Exit(-9, 10.2, asked=False)}, tmp_path)
    assert (error.rank, error.type, error.message) == (1, "SIGKILL", "rank 1 was ended by SIGKILL")


def test_a_signal_that_came_long_after_an_exception_is_no_cause(failed, tmp_path):
    # As NCCL's watchdog, which aborts the process when a peer has gone.
    error = first(failed({0: ("boom", 10.0)}), {"1": Exit(-6, 20.0, asked=False)}, tmp_path)
    assert (error.rank, error.message) == (0, "boom")


def test_a_signal_without_a_name_is_no_trouble(tmp_path):
    error = first({}, {"0": Exit(-35, 1.0, asked=False)}, tmp_path)  # a real-time signal
    assert error.rank == 0 and "35" in error.message


def test_a_bare_exit_code_is_told_with_the_last_lines(tmp_path):
    (tmp_path / "rank1.stderr").write_text("about to leave\n")
    error = first({}, {"1": Exit(3, 1.0, asked=False)}, tmp_path)
    assert (error.rank, error.type, error.message) == (1, "SystemExit", "rank 1 ended with exit code 3")
    assert "about to leave" in error.traceback


def test_a_script_without_records_is_known_by_its_last_words(tmp_path):
    said = RankError(1, "OwnError", "no: number", "Traceback …", None, 1.0)
    error = first({}, {"1": Exit(1, 1.1, asked=False)}, tmp_path, {1: Place(1, 100, 1.0, error=said)}.items())
    assert error is said


def test_nobody_failed_where_nobody_says_so(rank_record, tmp_path):
    assert find_errors({0: rank_record()}, {}, {"0": Exit(0, 1.0, asked=False)}, tmp_path) == []


def test_a_rank_that_stopped_in_an_earlier_stage_left_early(rank_record):
    behind = rank_record(1, stages=[StageRow("mesh", 0.5)], steps=[])
    exits = {"0": Exit(0, 9.0, asked=False), "1": Exit(0, 5.0, asked=False)}
    (error,) = left_early({0: rank_record(0), 1: behind}, exits, [])
    assert (error.rank, error.type, error.stage) == (1, LEFT_EARLY, "mesh")


def test_a_rank_that_never_closed_its_record_left_early(rank_record):
    exits = {"0": Exit(0, 9.0, asked=False), "1": Exit(0, 9.0, asked=False)}
    (error,) = left_early({0: rank_record(0), 1: rank_record(1, status="running")}, exits, [])
    assert error.rank == 1 and "os._exit" in error.message


def test_ranks_that_came_as_far_as_each_other_did_not_leave_early(rank_record):
    exits = {"0": Exit(0, 9.0, asked=False), "1": Exit(0, 9.0, asked=False)}
    assert left_early({0: rank_record(0), 1: rank_record(1)}, exits, []) == []


def test_who_had_ended_when_the_others_lost_a_peer_had_left_them(tmp_path):
    exits = {"0": Exit(1, 9.1, asked=False), "1": Exit(0, 9.0, asked=False)}
    lost = RankError(0, "RuntimeError", CLOSED, TRACE)
    (error,) = left_early({}, exits, [lost])  # also where nobody keeps a record
    assert (error.rank, error.type) == (1, LEFT_EARLY)


def test_the_end_of_a_log_is_text_whatever_it_holds(tmp_path):
    log = tmp_path / "rank0.stderr"
    with log.open("wb") as file:
        file.seek(300 * 2**20)  # a sparse file
        file.write(b"\xff\xfe broken \xe2\x82 bytes\nlast")
    assert last_lines(log, 20).endswith("bytes\nlast")
    assert last_lines(tmp_path / "none") == ""


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("TimeoutError", "The read operation timed out"),
        ("ConnectionRefusedError", "[Errno 111] Connection refused"),
        ("RuntimeError", "DataLoader timed out after 2 seconds"),
        ("TypeError", "Expected timeout argument to be of type datetime.timedelta, got int"),
    ],
)
def test_a_ranks_own_timeout_or_connection_is_a_cause(kind, message):
    error = RankError(1, kind, message, "Traceback …", "train", 9.0)
    assert not is_consequence(error) and not waited_too_long(error)


def test_a_rank_that_came_to_the_end_of_its_script_did_not_leave_early(rank_record):
    records = {0: rank_record(0), 1: rank_record(1)}
    records[0].stages.append(StageRow("save"))
    exits = {"0": Exit(0, 12.0, asked=False), "1": Exit(0, 9.0, asked=False)}
    assert [error.rank for error in left_early(records, exits, [])] == [1]
    assert left_early(records, exits, [], finished={0, 1}) == []


def test_a_pipe_in_place_of_a_log_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "rank0.stderr")
    assert last_lines(tmp_path / "rank0.stderr") == ""
