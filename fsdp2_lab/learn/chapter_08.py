"""The exercises of chapter 08: one rank and N, the right mean, accumulation, and what saves a killed run."""

from pathlib import Path

from ..contract.saved_state import read_state
from ..contract.units import MIB
from ..lab.runs import Run
from .chapter_02 import loss_difference
from .evidence import mib_per_parameter
from .exercise import Exercise, NoEvidence, Repair

q08a = Exercise(
    name="q08a",
    question="At how many MiB does a rank of the sharded run peak, at the same global batch?",
    unit="MiB",
    measure=lambda many, one: many.peak_bytes / MIB,
    tolerance=0.15,
    hints=(
        "States are divided by N, and so is the batch. Which bytes are not divided?",
        "Take one rank's peak divided by N, and add a block or two: gathered, and as a gradient to be reduced.",
    ),
    solution_text="More than 1/N of one rank's peak: gathered blocks and the reduce-scatter's buffers are not divided.",
    slips=((lambda many, one: one.peak_bytes / MIB, "That is one rank alone; here N ranks divide states and batch."),),
)


def token_weight(run: Run) -> float:
    """How many times as much a token of the last rank weighs in a mean of means as one of rank 0, in the first step."""
    if run.ranks < 2:
        raise NoEvidence("On a single rank all tokens weigh the same; launch the stage on two ranks or more.")
    first, last = (run.records[rank].steps[0].values["mine"] for rank in (0, -1))
    return first / last


q08b = Exercise(
    name="q08b",
    question="A token of the last rank weighs how many times as much as one of rank 0?",
    unit="times",
    how="counted",
    measure=token_weight,
    tolerance=0.1,  # a file's last window is shorter still
    hints=(
        "Each rank's mean gets the same weight, 1/N. Among how many tokens is it shared out?",
        "Rank 0 has sequences of 128 tokens, the last rank as many of 8.",
    ),
    solution_text="As many times as rank 0 has more tokens: 1/N of the gradient goes to each rank's, few or many.",
    slips=((lambda run: 1.0, "So it is with the loss of stage `train`. Here every rank's mean counts the same."),),
)


def step_difference(wrong: Run, right: Run) -> float:
    """The largest relative difference between two runs' losses, and between the norms of their first gradients.

    Later norms tell less: where a gradient is nearly 0, Adam's first steps turn its last digit into a full step.
    """
    norms = [run.records[0].steps[0].values["grad_norm"] for run in (wrong, right)]
    return max(abs(norms[0] / norms[1] - 1), loss_difference(wrong, right))


def mending(wrong: Run, right: Run) -> float:
    """The same, where one of the runs is of several ranks. Raises `NoEvidence` where none is."""
    if wrong.ranks < 2:
        raise NoEvidence("On a single rank this stage has no fault; launch it on two ranks or more.")
    return step_difference(wrong, right)


q08c = Repair(
    name="q08c",
    task="Make its losses and its first gradient on N ranks those of one rank.",
    fault=mending,
    tolerance=1e-5,
    hints=(
        "By what must each rank divide, so that every token of the step weighs the same?",
        'Sum instead of averaging: cross_entropy(…, reduction="sum"), and divide by `tokens`, which is everybody\'s.',
        "FSDP2 averages the ranks' gradients, and you want their sum: what undoes a division by N?",
    ),
    solution_text=(
        'loss_sum = cross_entropy(…, reduction="sum"); (loss_sum * world_size / tokens).backward(); and to log it, '
        "loss = loss_sum.detach() / tokens, summed over ranks."
    ),
)


def held_back_mib(run: Run) -> float:
    """What a rank holds after a backward without reduction, above what it held before."""
    row = run.stage("held_back")[0]
    return (row.bytes_after - row.bytes_before) / MIB


q08d = Exercise(
    name="q08d",
    question="How many MiB of gradients does a rank hold after a backward without reduction?",
    unit="MiB",
    measure=held_back_mib,
    tolerance=0.05,
    hints=(
        "A shard of the sum exists only once ranks have added up. What is there before?",
        "4 bytes for each parameter, of the whole model.",
    ),
    solution_text="4 bytes for each parameter, whole, on every rank: sharding gives nothing here until it is reduced.",
    slips=(
        (
            lambda run: mib_per_parameter(run, 4) / run.ranks,
            "That is after a reduction. Without one, nobody has anything to divide.",
        ),
        (lambda run: mib_per_parameter(run, 8), "That is two float32 numbers for each parameter; a gradient is one."),
        (lambda run: mib_per_parameter(run, 2), "That is bfloat16; this run computes in float32."),
    ),
)


def first_step(run: Run) -> int:
    """The number of the first step a run made. Raises `NoEvidence` for a run that made none."""
    if not run.records or not run.records[0].steps:
        raise NoEvidence("This run made no step; give it more steps than the state has.")
    return run.records[0].steps[0].step


q08e = Exercise(
    name="q08e",
    question="Which step does the resumed run make first?",
    unit="",
    measure=first_step,
    tolerance=0.0,
    hints=(
        "Which folders are there? What was not saved has to be done again.",
        "`step-8` was saved when eight steps were done, those with the numbers 0 to 7.",
    ),
    solution_text="The one after the last that is in the newest whole state. What was done since is done again.",
    slips=(
        (lambda run: 0, "That is from the beginning. Something was saved."),
        (lambda run: first_step(run) - 1, "That step is in the state: it was saved after it was done."),
        (lambda run: 2 * first_step(run), "That state was never finished; only a whole one is resumed from."),
    ),
)


def state_mib(folder: Path, _run: Run | None = None) -> float:
    """The tensors of a saved state on the disk, of all ranks."""
    return sum(read_state(folder).files.values()) / MIB


q08f = Exercise(
    name="q08f",
    question="How many MiB has a saved state on the disk, of all ranks together?",
    unit="MiB",
    measure=state_mib,
    tolerance=0.04,
    hints=(
        "What is saved for each parameter? Not what a rank holds, but what the next step starts from.",
        "A float32 weight and Adam's two states: 12 bytes for each parameter.",
    ),
    solution_text="12 bytes for each parameter: the weight and Adam's two states. It does not depend on N.",
    slips=(
        (lambda folder, run: mib_per_parameter(run, 16), "Gradients are not saved: they are gone when a step ends."),
        (lambda folder, run: mib_per_parameter(run, 4), "Those are the weights; Adam would begin anew."),
        (lambda folder, run: mib_per_parameter(run, 12) / run.ranks, "That is one rank's file."),
    ),
)
