"""Where a running job stands: what is read from a record, how often, and what is made of it."""

import os
import time

import pytest

from fsdp2_lab.contract.record import StageRow, StepRow, rank_file, write_record
from fsdp2_lab.contract.units import format_duration
from fsdp2_lab.lab.live import standing as module
from fsdp2_lab.lab.live.standing import Follower, standing, where

MIB = 2**20


@pytest.fixture
def running(rank_record):
    """Makes the record of a rank that is in the loop of its last stage."""

    def make(steps, planned=10, **changes):
        stages = [StageRow("mesh", 0.5, peak_bytes=MIB), StageRow("train")]
        return rank_record(status="running", stages=stages, steps=steps, settings={"steps": planned}, **changes)

    return make


def timed(seconds: list[float], tokens: int | None = 600) -> list[StepRow]:
    return [StepRow(i, "train", loss=4.0, tokens=tokens, seconds=s) for i, s in enumerate(seconds)]


def test_eta_is_the_steps_left_times_the_median_of_timed_steps(running):
    slow = StepRow(0, "train", loss=6.0, tokens=600, seconds=90.0, peak_bytes=40 * MIB, timed=False)
    now = standing(running([slow, *timed([1.0, 2.0, 9.0])]))
    assert (now.steps_done, now.steps_planned) == (4, 10)
    assert now.eta_seconds == pytest.approx(6 * 2.0)
    assert now.tokens_per_second == pytest.approx(3 * 600 / 12.0)


def test_eta_counts_down_between_two_records_and_stays_above_zero(tmp_path, running, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    write_record(tmp_path, running(timed([2.0] * 8)))
    follower = Follower(tmp_path)
    assert follower.look().eta_seconds == pytest.approx(4.0)
    now[0] += 1.5
    assert follower.look().eta_seconds == pytest.approx(2.5)
    now[0] += 100.0
    assert follower.look().eta_seconds == 0.0


def test_speed_follows_the_last_twenty_steps(running):
    now = standing(running(timed([10.0] * 30 + [1.0] * 20), planned=60))
    assert now.tokens_per_second == pytest.approx(600)
    assert now.eta_seconds == pytest.approx(10.0)


def test_nothing_is_guessed_from_metered_steps_or_from_steps_without_tokens(running):
    metered = [StepRow(0, "train", loss=6.0, tokens=600, seconds=9.0, timed=False)]
    assert standing(running(metered)).eta_seconds is None
    assert standing(running(metered)).tokens_per_second is None
    assert standing(running(timed([1.0], tokens=None))).tokens_per_second is None


def test_stages_are_done_or_current(running, rank_record):
    now = standing(running([]))
    assert (now.done, now.current, now.steps_done, now.numbers) == (["mesh"], "train", 0, ["peak 1.00 MiB"])
    assert standing(rank_record(status="ok")).current is None


def test_steps_of_an_earlier_stage_are_not_counted(running):
    earlier = [StepRow(0, "warm", loss=1.0, tokens=1, seconds=1.0)]
    assert standing(running(earlier)).steps_done == 0


@pytest.mark.parametrize("planned", [None, "ten", 2])
def test_a_number_of_steps_that_makes_no_sense_is_left_out(running, planned):
    now = standing(running(timed([1.0] * 3), planned=planned))
    assert (now.steps_planned, now.share, now.eta_seconds) == (None, None, None)
    assert now.numbers[0] == "step 3"


def test_where_is_one_line(running, rank_record):
    words = "stage train, step 3 of 10, loss 4.0000, peak 1.00 MiB, 600 tokens/s, 7 s left"
    assert where(running(timed([1.0] * 3))) == words
    assert where(rank_record(stages=[], steps=[])) == "starting"


@pytest.mark.parametrize("broken", ["{", "[]", "null", '{"schema": 1}', '{"schema": 99}', "\x00\xff", "[" * 100_000])
def test_a_record_that_is_half_there_leaves_the_last_whole_one(broken, tmp_path, running, monkeypatch):
    monkeypatch.setattr(module, "_READ_SHARE", 1e9)
    follower = Follower(tmp_path)
    assert follower.look() is None
    rank_file(tmp_path, 0).write_text(broken)
    assert follower.look() is None
    write_record(tmp_path, running(timed([1.0])))
    assert follower.look().steps_done == 1
    rank_file(tmp_path, 0).write_text(broken)
    assert follower.look().steps_done == 1


def test_a_record_of_odd_types_ends_nothing(tmp_path, running):
    write_record(tmp_path, running([StepRow(0, "train", loss=1.0, tokens="many", seconds="long")]))
    assert Follower(tmp_path).look() is None


def test_a_record_is_read_when_it_changed_and_takes_little_of_the_time(tmp_path, running, monkeypatch):
    write_record(tmp_path, running(timed([0.1] * 5000)))
    reads = []
    read = module.read_record
    monkeypatch.setattr(module, "read_record", lambda path: (reads.append(path), read(path))[1])
    follower = Follower(tmp_path)
    for changed in range(20):
        os.utime(rank_file(tmp_path, 0), (changed, changed))  # as if it were written again
        follower.look()
    assert len(reads) == 1
    monkeypatch.setattr(module, "_READ_SHARE", 1e9)
    follower._next_read = 0.0
    for _ in range(5):
        follower.look()
    assert len(reads) == 2


def test_a_look_costs_little_also_after_many_steps(tmp_path, running):
    write_record(tmp_path, running(timed([0.1] * 20_000), planned=30_000))
    follower = Follower(tmp_path)
    follower.look()
    start = time.perf_counter()
    for _ in range(100):
        follower.look()
    assert (time.perf_counter() - start) / 100 < 0.002


def test_a_record_too_large_to_read_in_passing_is_left_for_the_end(tmp_path, monkeypatch, running):
    monkeypatch.setattr(module, "_LARGEST_RECORD_BYTES", 10)
    write_record(tmp_path, running([]))
    assert Follower(tmp_path).look() is None


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (3599, "59 min 59 s"), (7500, "2 h 05 min")],
)
def test_durations_are_said_as_people_say_them(seconds, said):
    assert format_duration(seconds) == said
