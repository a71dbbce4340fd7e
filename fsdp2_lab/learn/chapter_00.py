"""The exercises of chapter 00: an untrained model's loss, what training leaves, what a step trains on and records."""

from math import log, log2

from ..contract.units import MIB
from ..lab.runs import Run
from .evidence import mib_per_parameter
from .exercise import Choice, Exercise, NoEvidence

TOKENS = 384  # that the byte-level tokenizer can tell apart


def tokens_a_step(run: Run) -> int:
    """Tokens of all ranks in the first step, as they counted them. Raises `NoEvidence` where none were logged."""
    steps = run.records[0].steps if run.records else []
    if not steps or steps[0].tokens is None:
        raise NoEvidence("This run logged no tokens; launch a stage that trains.")
    return steps[0].tokens


def first_loss(run: Run) -> float:
    """The loss before the first update. Raises `NoEvidence` where none was logged or the weights were trained."""
    if not run.losses or run.records[0].settings.get("weights") != "random":
        raise NoEvidence('The question is of an untrained model; launch "train" with weights="random".')
    return run.losses[0]


def whose_loss(run: Run) -> str:
    """Whether the ranks recorded the same first loss. Raises `NoEvidence` for one rank, and where none was logged."""
    firsts = [record.steps[0].loss for record in run.records if record.steps]
    if len(firsts) < 2 or None in firsts:
        raise NoEvidence("It takes two ranks that train to compare; launch the stage train on two or more.")
    return "same" if len(set(firsts)) == 1 else "own"


q00a = Exercise(
    name="q00a",
    question="What is the loss before the first update, in nats per token?",
    unit="nats",
    measure=first_loss,
    tolerance=0.03,
    hints=("An untrained model gives each of its 384 tokens about the same probability.", "-log(1/384)."),
    solution_text="Guessing among 384 tokens costs log(384) = 5.95; random weights guess a little worse than that.",
    slips=(
        (lambda run: log2(TOKENS), "That is in bits; nats are of the natural logarithm."),
        (lambda run: log(256), "There are 256 bytes, but 384 tokens."),
        (lambda run: 0.0, "A loss of 0 is certainty, and the model knows nothing yet."),
    ),
)

q00b = Exercise(
    name="q00b",
    question="How many MiB does rank 0 still hold when training has ended?",
    unit="MiB",
    measure=lambda run: run.stage("train")[0].bytes_after / MIB,
    tolerance=0.06,
    hints=(
        "Which of the four in the table are still there when a step has ended, and how many ranks share them?",
        "zero_grad frees the gradients; parameters and Adam's two states stay, 4 bytes each, on N ranks.",
    ),
    solution_text=(
        "12 bytes per parameter, divided by the ranks: parameter, exp_avg and exp_avg_sq in float32. "
        "The little more is the last batch's logits, which the script still refers to."
    ),
    slips=(
        (lambda run: mib_per_parameter(run, 16) / run.ranks, "16 bytes count the gradients too, and they are freed."),
        (lambda run: mib_per_parameter(run, 16), "That is the whole model and its gradients, on one rank."),
        (lambda run: mib_per_parameter(run, 12), "That is the whole model; every rank holds a share."),
        (lambda run: mib_per_parameter(run, 4) / run.ranks, "Those are the parameters alone; Adam keeps two states."),
    ),
)

q00c = Exercise(
    name="q00c",
    question="How many tokens do all ranks train on in one step?",
    unit="tokens",
    measure=tokens_a_step,
    tolerance=0.0,
    hints=("batch counts the sequences of one rank, seq the tokens of a sequence.", "batch × seq × ranks."),
    solution_text="Every rank reads sequences of its own: batch × seq × ranks, the global batch.",
    slips=(
        (lambda run: tokens_a_step(run) // run.ranks, "That is one rank's; every rank reads text of its own."),
        (lambda run: run.records[0].settings["batch"] * run.ranks, "Those are sequences; each has seq tokens."),
    ),
)

q00d = Choice(
    name="q00d",
    question="Which loss of a step stands in rank 1's record?",
    options={"same": "the same as in rank 0's", "own": "that of its own text", "none": "none, only rank 0 records one"},
    measure=whose_loss,
    hints=(
        "Every rank writes a record of its own. Look at the losses of ranks 0 and 1 in the table.",
        "The program sums loss and tokens over the ranks before it logs them.",
    ),
    solution_text=(
        "Each rank computes the loss of its own text. The program adds them up over the ranks, with an all-reduce, and "
        "divides by all tokens, so every rank logs the loss of the global batch."
    ),
    slips={
        "own": "Each rank has one of its own text, but that is not what it logs: compare the two in the table.",
        "none": "Every rank writes a record, losses included.",
    },
)
