"""The exercises of chapter 03: ranks, meshes, what collectives do and send, and a rank that does not come."""

from ..contract.units import MIB
from ..lab.runs import Run
from .exercise import Exercise, NoEvidence, Repair


def partner(run: Run) -> int:
    """The rank that holds rank 1's shard in the other replica. Raises `NoEvidence` where there is not one other."""
    others = [rank for rank in run.noted("groups").get(1, {}).get("replicate", []) if rank != 1]
    if len(others) != 1:
        raise NoEvidence(f"On {run.ranks} ranks rank 1 has no one partner; launch mesh_2d on 4 ranks.")
    return others[0]


def sent_mib(run: Run, name: str = "all-gather") -> float:
    """What a rank sent, on average. Raises `NoEvidence` for one rank alone."""
    if run.ranks == 1:
        raise NoEvidence("One rank alone sends nothing; launch wire on two or more.")
    return run.noted(name)[0]["sent_bytes"] / MIB


def _whole_mib(run: Run) -> float:
    return run.noted("all-gather")[0]["whole_bytes"] / MIB


def ranks_without_the_sum(run: Run) -> int:
    """How many ranks did not note 1 + 2 + … + N, whether they hung or noted something else."""
    total = run.ranks * (run.ranks + 1) / 2
    return run.ranks - sum(record.values.get("total") == total for record in run.records)


q03a = Exercise(
    name="q03a",
    question="Each rank r brings a list filled with r. What number stands in rank 0's part after the reduce-scatter?",
    unit="",
    measure=lambda run: run.noted("reduce-scatter")[0]["after"][0],
    tolerance=0.0,
    hints=(
        "Reduce means that the lists are added, element by element, over all ranks.",
        "Ranks 0 to N - 1 bring 0, 1, 2 and so on. Add them.",
    ),
    solution_text="0 + 1 + … + (N - 1). Every rank gets its own part of the sum, and each part is the same here.",
    slips=(
        (lambda run: run.ranks, "That counts the ranks; the elements are added."),
        (lambda run: (run.ranks - 1) / 2, "That is the mean; FSDP divides by N afterwards, the collective adds."),
    ),
)

q03b = Exercise(
    name="q03b",
    how="predicted",
    question="3 hosts with 8 GPUs each: which LOCAL_RANK has the process whose RANK is 21?",
    unit="",
    measure=lambda: 21 % 8,
    tolerance=0.0,
    hints=("RANK counts on from host to host, LOCAL_RANK begins at 0 on each.", "The third host's first is RANK 16."),
    solution_text="21 - 16 = 5: hosts 0 and 1 have the ranks 0 to 15. Its GROUP_RANK is 2.",
    slips=(
        (lambda: 21, "That is the rank among all 24; a host has GPUs 0 to 7."),
        (lambda: 2, "That is the host, its GROUP_RANK."),
        (lambda: 6, "Both count from 0: the third host's first process has RANK 16 and LOCAL_RANK 0."),
    ),
)

q03c = Exercise(
    name="q03c",
    question="Four ranks in two rows of two: which rank holds the same shard as rank 1?",
    unit="",
    measure=partner,
    tolerance=0.0,
    hints=(
        "Write the four ranks into two rows, the first row first. What does a row hold together?",
        "A shard is shared by a column: row 0 is ranks 0 and 1, row 1 the others.",
    ),
    solution_text="Rank 3. Rows are 0 1 and 2 3; both ranks of a column hold the same half of each parameter.",
    slips=(
        (lambda run: 0, "Rank 0 stands in rank 1's row, and holds the other half."),
        (lambda run: 2, "Rank 2 begins the second row, under rank 0."),
    ),
)

q03d = Exercise(
    name="q03d",
    question="How many MiB does each rank send when 16 MiB are all-gathered?",
    unit="MiB",
    measure=sent_mib,
    tolerance=0.05,
    hints=(
        "Each rank starts with S/N. How often does it pass a piece to its neighbour?",
        "N - 1 times, a piece of S/N each: all pieces but the one that its neighbour began with.",
    ),
    solution_text="(N - 1)/N of 16 MiB: every piece but one, which its neighbour began with.",
    slips=(
        (lambda run: _whole_mib(run) / run.ranks, "That is its own piece; it passes on the others' as well."),
        (_whole_mib, "Nearly: nobody needs to send a rank its own piece."),
        (
            lambda run: 2 * (run.ranks - 1) / run.ranks * _whole_mib(run),
            "That is an all-reduce, a reduce-scatter and an all-gather in one.",
        ),
    ),
)

q03e = Repair(
    name="q03e",
    task="Every rank is to note the sum over all ranks.",
    fault=ranks_without_the_sum,
    unit="ranks",
    hints=(
        "Which ranks reach the line with all_reduce, and which go straight to the barrier?",
        "A collective belongs to all ranks. What may stand under the `if` is what one rank does alone, as printing.",
    ),
    solution_text="Take the all_reduce out of the `if`. All ranks add; rank 0 alone may print.",
)
