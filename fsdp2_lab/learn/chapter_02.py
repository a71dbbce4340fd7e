"""The exercises of chapter 02: what ZeRO's stages hold and send, and a stage to repair."""

from ..contract.units import MIB
from ..lab.runs import Run
from .exercise import Exercise, NoEvidence, Repair

_STATE = ("sharded_parameters", "sharded_gradients", "optimizer")
_P = 8 * 8 * 256**2  # parameters of the chapter's blocks


def state_bytes(run: Run) -> int:
    """Parameters, gradients and states at the peak of a later step, on rank 0. Raises `NoEvidence` without terms."""
    if not run.terms:
        raise NoEvidence("This run's bytes were not told apart by terms; launch the stage for at least two steps.")
    return sum(run.terms.get(term, 0) for term in _STATE)


def sent_bytes(run: Run) -> float:
    """What rank 0 sends in a step in a ring, as its script added it up."""
    return run.records[0].steps[-1].values["sent_bytes"]


def sent_times(run: Run, base: Run) -> float:
    """How many times as many bytes one run sends as another. Raises `NoEvidence` where that one sends none."""
    if not sent_bytes(base):
        raise NoEvidence("A single rank sends nothing; launch both stages on two ranks or more.")
    return sent_bytes(run) / sent_bytes(base)


def loss_difference(run: Run, one: Run) -> float:
    """The largest relative difference between two runs' losses."""
    return max(abs(a - b) / a for a, b in zip(one.losses, run.losses, strict=True))


q02a = Exercise(
    name="q02a",
    question="How many MiB of parameters, gradients and states does a rank hold in ZeRO-2?",
    unit="MiB",
    measure=lambda run: state_bytes(run) / MIB,
    tolerance=0.06,  # at the peak a block's piece of the gradients may not be there yet
    hints=("4 bytes for each parameter are whole; gradient and states, 12 bytes, are divided by the ranks.",),
    solution_text="4P + 12P/N, with P of 4.19 million: 16 MiB, and 48 MiB divided by N.",
    slips=(
        (lambda run: 16 * _P / run.ranks / MIB, "That is ZeRO-3; here every rank still has all parameters."),
        (lambda run: (8 + 8 / run.ranks) * _P / MIB, "That is ZeRO-1; the gradients are divided, too."),
        (lambda run: 16 * _P / MIB, "That is stage 0, which divides nothing."),
    ),
)

q02b = Exercise(
    name="q02b",
    how="predicted",
    question="How many times as many bytes as stage 0 does a rank send in ZeRO-3?",
    unit="times",
    measure=sent_times,
    tolerance=0.02,
    hints=("An all-reduce is a reduce-scatter and an all-gather. How often does ZeRO-3 gather a block in a step?",),
    solution_text="Two all-gathers and a reduce-scatter, each half of an all-reduce: 1.5 times.",
    slips=(
        (lambda zero3, zero0: 3.0, "Three collectives, but each sends half of what an all-reduce does."),
        (lambda zero3, zero0: 1.0, "That is ZeRO-1 and ZeRO-2; ZeRO-3 gathers once more, for backward."),
    ),
)

q02c = Exercise(
    name="q02c",
    how="predicted",
    question="On 4 ranks, which fraction of stage 0's bytes does a rank hold in ZeRO-2, for the same model?",
    unit="",
    measure=lambda: (4 + 12 / 4) / 16,
    tolerance=0.02,
    hints=("What does ZeRO-2 divide, and what is whole on every rank?", "4P is whole, 12P are divided by 4: over 16P."),
    solution_text="7/16: less than half. However many ranks there are, it stays above 1/4, the whole parameters.",
    slips=(
        (lambda: 0.25, "That is ZeRO-3. ZeRO-2 keeps all parameters on every rank."),
        (lambda: 0.875, "That is against stage 0 with half as many parameters; for the same model it is 7P over 16P."),
    ),
)

q02d = Repair(
    name="q02d",
    task="Make its losses those of one process.",
    fault=loss_difference,
    tolerance=1e-6,  # an unaveraged gradient, which AdamW hides, is off by more
    hints=(
        "Print the losses of both. The first agree, the second do not: what is stale in the second step?",
        "Each rank has updated its own piece of every weight. Who has told the others?",
    ),
    solution_text=(
        "After optimizer.step(): dist.all_gather_into_tensor(weight.detach(), piece.detach()) for every weight. "
        "Without it each rank computes with its own piece of today and everybody else's of the beginning."
    ),
)
