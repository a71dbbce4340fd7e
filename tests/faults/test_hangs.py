"""A rank that others wait for without end: the deadline ends the launch, and who waits for whom, and where, is said."""

import re

import pytest
from harness import SCRIPTS
from promises import nothing_left, nothing_lost

TIMEOUT = 13.0
END_SECONDS = 10.0  # after the deadline
PLACE = r"\bhangs\.py:\d+"


def others(ranks: int) -> str:
    """`rank 0` or `ranks 0 and 2`."""
    return r"ranks? 0" if ranks == 2 else r"(ranks 0 and 2|rank 0 waits)"


# Name, number of ranks, and what must be said about the rank that the others wait for.
HANGS = [
    pytest.param("skips-one", 2, r"rank 1 never reached \S*all.?reduce", id="skips-one-2", marks=pytest.mark.fast),
    pytest.param("skips-one", 3, r"rank 1 never reached \S*all.?reduce", id="skips-one-3"),
    pytest.param("mismatch", 2, r"rank 1 \b.*all.?gather", id="mismatch-2"),
    pytest.param("rank-0-state-dict", 2, r"rank 1 ", id="rank-0-state-dict-2"),
    pytest.param("another-group", 3, r"rank 1 never reached all-reduce 1 of ranks 0 and 1 ", id="another-group-3"),
    pytest.param("holds-the-lock", 2, r"rank 1 does not answer.*hangs\.py:\d+", id="holds-the-lock-2"),
    pytest.param("lost-in-python", 2, r"rank 1 never reached \S*all.?reduce", id="lost-in-python-2"),
]


@pytest.mark.parametrize(("name", "ranks", "missing"), HANGS)
def test_a_hang_is_explained(name, ranks, missing, lab):
    ended = lab.run(SCRIPTS / "hangs.py", name, ranks=ranks, timeout=TIMEOUT)
    seconds = ended.ended - ended.began
    lab.measures |= {"kind": "hang", "seconds_to_report": max(0.0, seconds - TIMEOUT)}
    broken = nothing_left(lab, ended) + nothing_lost(lab, ended, "train")
    if len(ended.reached) != ranks:
        broken.append(f"only ranks {sorted(ended.reached)} began within {TIMEOUT:g} s: no hang was met")
    if seconds > TIMEOUT + END_SECONDS:
        broken.append(f"ended {seconds - TIMEOUT:.1f} s after its deadline; {END_SECONDS:g} s are promised")
    # PyTorch's own timeout may come first, and is a failure then.
    if (ended.code, ended.told["status"]) not in ((124, "timeout"), (1, "failed")):
        broken.append(f"exit code {ended.code}, status {ended.told['status']}")
    said = ended.stderr
    if not re.search(missing, said):
        broken.append(f"the rank that is waited for is not named: {missing!r}")
    if not re.search(others(ranks) + r"\b.*(wait|there)", said):
        broken.append(f"the ranks that wait are not named: {others(ranks)!r}")
    if not re.search(PLACE, said):
        broken.append("no line of the script is named")
    if not re.search(r"stage train\b", said):
        broken.append("the stage is not named")
    for rank in ended.reached:
        if (status := getattr(ended.record(rank), "status", None)) not in ("incomplete", "failed"):
            broken.append(f"the record of rank {rank} says {status}")
    assert not broken, "\n".join([*broken, ended.said])


def test_ranks_that_say_nothing_are_ended_at_the_deadline(lab):
    ended = lab.run(SCRIPTS / "foreign_faults.py", "deaf", timeout=10)
    seconds = ended.ended - ended.began
    lab.measures |= {"kind": "hang", "seconds_to_report": max(0.0, seconds - 10)}
    broken = nothing_left(lab, ended)
    assert not broken, "\n".join([*broken, ended.said])
    assert (ended.code, ended.told["status"]) == (124, "timeout"), ended.said
    assert seconds < 10 + END_SECONDS
    # Not ours to know what it waits for; where each rank stood can be seen all the same.
    assert re.search(r"rank 0.*foreign_faults\.py:\d+", ended.stderr), ended.said
    assert re.search(r"rank 1.*foreign_faults\.py:\d+", ended.stderr), ended.said
