"""Who waits for whom: the collectives and lines of stuck ranks, read as a sentence."""

from pathlib import Path

import pytest

import fsdp2_lab
from fsdp2_lab.contract.places import Collective, Place, read_stack, stack_file
from fsdp2_lab.contract.record import RankError
from fsdp2_lab.lab.verdict.hang import explain, script_line

TORCH = next(path for path in __import__("torch").__path__) + "/distributed/distributed_c10d.py"


def place(rank, number, *, waiting, name="all_gather", line=88, sizes=((4,),), group="0", step=4):
    call = Collective(group, number, name, [list(size) for size in sizes], waiting, 100.0)
    frames = [("<frozen runpy>", 1, "run"), ("/home/me/train.py", line, "<module>"), (TORCH, 5, "all_gather")]
    return Place(rank, 10 + rank, 111.9, "train", step, frames, [call])


def test_the_rank_that_the_others_wait_for_is_named_first():
    places = {0: place(0, 37, waiting=True), 1: place(1, 36, waiting=False, line=90), 2: place(2, 37, waiting=True)}
    assert explain(places, 3)[0] == (
        "rank 1 never reached all-gather 37 (stage train, step 4, train.py:90); "
        "ranks 0 and 2 wait there since 11.90 s (stage train, step 4, train.py:88)."
    )


def test_a_rank_that_says_nothing_is_missing_too():
    said = explain({0: place(0, 37, waiting=True)}, 2)[0]
    assert said.startswith("rank 1 never reached all-gather 37; rank 0 waits there since")


def test_ranks_that_call_different_collectives_disagree():
    places = {0: place(0, 5, waiting=True), 1: place(1, 5, waiting=True, name="barrier", sizes=())}
    assert explain(places, 2)[0] == (
        "The ranks disagree on collective 5: rank 0 began all-gather of (4,) and rank 1 began barrier."
    )


@pytest.mark.parametrize("message", ["Timed out waiting 8000ms for recv", "Connection closed by peer [127.0.0.1]:19"])
def test_a_collective_that_was_broken_off_counts_as_begun(message):
    frames = "torch/distributed/distributed_c10d.py"
    places = {0: place(0, 1, waiting=True, name="all_reduce"), 1: place(1, 1, waiting=False, name="barrier", sizes=())}
    assert "is in no collective" in explain(places, 2)[-1]
    places[1].error = RankError(1, "RuntimeError", message, frames)
    assert explain(places, 2)[0] == (
        "The ranks disagree on collective 1: rank 0 began all-reduce of (4,) and rank 1 began barrier."
    )


def test_ranks_that_call_it_with_different_sizes_disagree():
    places = {0: place(0, 5, waiting=True), 1: place(1, 5, waiting=True, sizes=[(8,)])}
    assert "rank 1 began all-gather of (8,)" in explain(places, 2)[0]


def test_the_earliest_collective_is_the_one_that_holds_up_the_others():
    # Rank 2 is one further on: it has left 37 and waits in 38 for the others.
    places = {0: place(0, 37, waiting=True), 1: place(1, 36, waiting=False), 2: place(2, 38, waiting=True)}
    said = explain(places, 3)[0]
    assert said.startswith("rank 1 never reached all-gather 37") and "rank 0 waits there" in said


def test_when_all_are_there_nobody_is_blamed():
    assert explain({rank: place(rank, 9, waiting=True) for rank in (0, 1)}, 2)[0].startswith("All ranks stand in")


def test_without_collectives_each_ranks_line_is_told():
    places = {rank: place(rank, 9, waiting=False, line=20 + rank) for rank in (0, 1)}
    assert [line.strip() for line in explain(places, 2)] == [
        "rank 0 is in no collective (stage train, step 4, train.py:20)",
        "rank 1 is in no collective (stage train, step 4, train.py:21)",
    ]


@pytest.mark.parametrize("file", ["rank/text.py", "agent/worker.py", "lab/job.py"])
def test_a_line_of_ours_is_not_the_scripts(file):
    stuck = place(0, 1, waiting=True)
    stuck.frames.append((str(Path(fsdp2_lab.__file__).parent / file), 7, "inside"))
    assert script_line(stuck) == "train.py:88"


def test_the_line_is_the_scripts_and_no_librarys():
    assert script_line(place(0, 1, waiting=True)) == "train.py:88"
    assert script_line(Place(0, 1)) is None


def in_group(rank, group, members, *, waiting=True):
    standing = place(rank, 1, waiting=waiting, group=group, line=80 + rank)
    standing.collectives[0].members = members
    return standing


def test_a_rank_that_is_no_member_of_the_group_is_not_blamed():
    lost = Place(1, 11, 111.9, "train", 4, [("/home/me/train.py", 81, "<module>")])
    said = explain({0: in_group(0, "1", [0, 1]), 1: lost, 2: in_group(2, "2", [1, 2])}, 3)[0]
    assert said.startswith("rank 1 never reached all-gather 1 of ranks 0 and 1 (stage train, step 4, train.py:81)")


def test_a_chain_of_groups_is_followed_to_the_rank_that_waits_for_nobody():
    lost = Place(2, 12, 111.9, "train", 4, [("/home/me/train.py", 82, "<module>")])
    said = explain({0: in_group(0, "1", [0, 1]), 1: in_group(1, "2", [1, 2]), 2: lost}, 3)[0]
    assert said.startswith("rank 2 never reached all-gather 1 of ranks 1 and 2") and "rank 1 waits there" in said


def test_the_stack_that_a_signal_left_is_read_outermost_first(tmp_path):
    frames = '  File "/a/re.py", line 166 in match\n  File "/a/b.py", line {} in f\n'
    block = "{} thread 0x1 (most recent call first):\n" + frames
    stack_file(tmp_path, 1).write_text(
        block.format("Current", 1) + "\n" + block.format("Thread", 3) + "\n" + block.format("Thread", 2)
    )
    assert read_stack(tmp_path, 1) == [("/a/b.py", 2, "f"), ("/a/re.py", 166, "match")]
    assert read_stack(tmp_path, 0) == []
