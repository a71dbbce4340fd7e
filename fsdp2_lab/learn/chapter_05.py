"""The exercises of chapter 05: what a rank holds, what forms a unit, which dtype keeps what, and a stage to repair."""

from ..contract.units import GIB, MIB
from ..lab.runs import Run
from .evidence import mib_per_parameter
from .exercise import Choice, Exercise, NoEvidence, Repair

_QUERIES = "model.layers.0.self_attn.q_proj.weight"


def query_rows(run: Run) -> list[int]:
    """The rows of the first block's query projection by rank. Raises `NoEvidence` for a model that has none."""
    noted = run.noted("shards")
    if any(_QUERIES not in shapes for shapes in noted.values()):
        raise NoEvidence(f"This model has no {_QUERIES}; launch the stage with model='byte-llama'.")
    return [shapes[_QUERIES][0] for shapes in noted.values()]


def collectives(run: Run) -> dict[str, int]:
    """One step's `all_gather` and `reduce_scatter`. Raises `NoEvidence` where a rank was alone."""
    if run.ranks < 2:
        raise NoEvidence("A single rank has nobody to gather from; launch the stage on two ranks or more.")
    return run.noted("collectives")[0]


def lowest_peak(runs: dict[str, Run]) -> str:
    """The label of the run whose later steps peak lowest. Raises `NoEvidence` where there is nothing to compare."""
    peaks = {label: run.peak_bytes for label, run in runs.items()}
    if not all(peaks.values()) or any(run.ranks < 2 for run in runs.values()):
        raise NoEvidence("Each of the runs needs two ranks and two steps or more.")
    return min(peaks, key=peaks.get)


def changed_share(run: Run) -> float:
    """Which part of all weights one step changed."""
    return run.noted("changed")[0]


def gib_more(base, other) -> float:
    """How much higher one account's peak is than another's."""
    return (other.peak_bytes - base.peak_bytes) / GIB


q05a = Exercise(
    name="q05a",
    question="How many MiB of parameters does rank 0 hold after fully_shard?",
    unit="MiB",
    measure=lambda run: run.stage("allocate")[0].bytes_after / MIB,
    tolerance=0.02,
    hints=(
        "The ranks divide the parameters. What else is there at this moment?",
        "Parameters times 4 bytes, divided by the number of ranks.",
    ),
    solution_text="4 bytes per parameter divided by N. Each parameter is cut along its first dimension.",
    slips=(
        (lambda run: mib_per_parameter(run, 4), "That is every parameter on every rank: data parallelism."),
        (lambda run: mib_per_parameter(run, 16) / run.ranks, "No gradient and no optimizer state exists yet."),
    ),
)

q05b = Exercise(
    name="q05b",
    question="How many of q_proj's rows does the last rank hold?",
    unit="rows",
    measure=lambda run: query_rows(run)[-1],
    tolerance=0.0,
    hints=(
        "Ranks are served in order, and each takes as many rows as rank 0 as long as there are any.",
        "Rank 0 takes rows / ranks, rounded up. Subtract what all ranks but the last take.",
    ),
    solution_text="Rows / ranks, rounded up, for each in turn; the last rank takes what is left.",
    slips=(
        (lambda run: query_rows(run)[0], "That is rank 0's part. There are not enough rows to give everybody as many."),
        (
            lambda run: sum(query_rows(run)) // run.ranks,
            "Rows / ranks, rounded down: then some would be left over. It is rounded up, and the last has fewer.",
        ),
    ),
)

q05c = Exercise(
    name="q05c",
    how="counted",
    question="How many all-gathers are there in one step of the stage layers?",
    unit="",
    measure=lambda run: collectives(run)["all_gather"],
    tolerance=0.0,
    hints=(
        "Count the units first: the blocks, and one more.",
        "A unit is gathered for forward and freed. What does its backward need?",
    ),
    solution_text="Two for each unit, for forward and for backward. Units are the blocks, and the root with the rest.",
    slips=(
        (lambda run: collectives(run)["reduce_scatter"], "That is once for each unit. Backward gathers it again."),
        (lambda run: sum(collectives(run).values()), "That counts the reduce-scatters, too."),
        (
            lambda run: collectives(run)["all_gather"] - 2,
            "Those are the blocks. Embedding, last norm and head are a unit, too: the root's.",
        ),
    ),
)

q05d = Choice(
    name="q05d",
    question="Which of the three peaks lowest?",
    options={"whole": "one unit", "layers": "a unit for each block", "linears": "a unit for each matrix"},
    measure=lowest_peak,
    hints=("What is whole at the peak: a unit, its gradients, and the buffers of their collectives.",),
    solution_text="The smaller a unit, the less is whole at one time. What that costs stands in the other columns.",
    slips={
        "whole": "There everything is gathered at once, and every gradient is whole before the first is reduced.",
        "layers": "A block at a time is much less than the model. But a matrix is less than a block.",
    },
)

q05e = Exercise(
    name="q05e",
    how="predicted",
    question="By how many GiB does a rank's peak grow when reshard is off?",
    unit="GiB",
    measure=gib_more,
    tolerance=0.05,
    hints=(
        "Print both accounts. Is the peak at the same moment?",
        "With reshard on, the peak is in the optimizer's step, when nothing is gathered. Off, it is in backward.",
    ),
    solution_text=(
        "Less than the gathered blocks, since the peak moves. In the optimizer's step they are gone again; in backward "
        "they come on top, but there the sharded gradients and AdamW's temporaries are missing."
    ),
    slips=(
        (
            lambda base, other: other.terms["unsharded_parameters"] / GIB,
            "That is what stays gathered. Before, the peak was at a moment at which nothing is.",
        ),
        (lambda base, other: 0, "All blocks stay gathered from forward to backward, and that is more than a GiB."),
    ),
)

q05f = Choice(
    name="q05f",
    question="With shards in bfloat16 and a learning rate of 1e-5, how many weights does the first step change?",
    options={"a": "nearly all", "b": "about half", "c": "less than a quarter"},
    measure=lambda run: "a" if changed_share(run) > 0.75 else "b" if changed_share(run) > 0.25 else "c",
    hints=(
        "AdamW's first step moves each weight by the learning rate, up or down.",
        "A bfloat16 has 8 significant bits: after 0.02 the next is 0.0001 away. What does rounding do with 0.00001?",
    ),
    solution_text="An update under half the distance to the next bfloat16 is rounded away: only small weights move.",
    slips={
        "a": "AdamW computes an update for each. But the sum is rounded to the nearest bfloat16, often the old one.",
        "b": "Fewer: compare 1e-5 with the distance between two bfloat16 numbers near a typical weight.",
    },
)

q05g = Repair(
    name="q05g",
    task="Make its step change the weights.",
    fault=lambda run: 100 * (1 - changed_share(run)),
    tolerance=5.0,
    unit="% of its weights",
    hints=(
        "Backward ran and step() ran. Whose gradients does the optimizer look at?",
        "fully_shard gives the model new parameters. Compare id(next(model.parameters())) before and after it.",
    ),
    solution_text=(
        "The optimizer is built after fully_shard. Built before, it keeps the parameters that the model no longer has; "
        "they never get a gradient, and AdamW passes over parameters without one."
    ),
)
