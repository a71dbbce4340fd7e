"""The exercises of chapter 13: what fits where, and why. Evidence are the planner's answers, with their accounts."""

from ..contract.units import GIB
from .exercise import Exercise


def _peak_gib(answer) -> float:
    return answer.account.peak_bytes / GIB


def _state_gib(answer, bytes_each: int = 16) -> float:
    return bytes_each * answer.account.parameters / answer.account.ranks / GIB


q13a = Exercise(
    name="q13a",
    question="How many GiB does each GPU need at its peak?",
    unit="GiB",
    measure=_peak_gib,
    how="predicted",
    hints=("16 bytes per parameter, divided by the GPUs; and AdamW works on all of a rank's shards at once.",),
    solution_text="20 bytes per parameter over N: the usual 16, and 4 for the square roots that AdamW takes.",
    slips=(
        (_state_gib, "That is 16P/N. While AdamW steps there are 4 bytes more per parameter."),
        (lambda answer: answer.account.ranks * _state_gib(answer), "That is the whole model's; it is divided."),
        (lambda answer: _state_gib(answer, 12), "Those are parameters and Adam's states; gradients are there, too."),
    ),
)

q13b = Exercise(
    name="q13b",
    question="How many sequences will each GPU take at most?",
    unit="sequences",
    measure=lambda answer: answer.value,
    how="predicted",
    hints=("Which moment grows with the batch? In the loss no weight has a gradient yet, and logits take 14bsv.",),
    solution_text="12 bytes per parameter over N, in the loss; each sequence adds its logits and its blocks' inputs.",
    slips=(
        (lambda answer: _batch(answer, 20, with_logits=False), "Logits and their gradients grow with the batch, too."),
        (lambda answer: _batch(answer, 20), "Two moments are added there: AdamW's step, and the loss."),
        (lambda answer: _batch(answer, 12, with_logits=False), "A sequence adds more than its blocks' inputs."),
    ),
)


def _batch(answer, bytes_each: int, with_logits: bool = True) -> int:
    """The batch for which there is room beside so many bytes per parameter, at so much a sequence."""
    found = answer.account
    room = found.peak_bytes - bytes_each * found.parameters / found.ranks
    each = found.article["boundary_bytes"] + (found.terms["logits"] if with_logits else 0)
    return int(room / each * answer.value)


q13c = Exercise(
    name="q13c",
    question="How many GPUs, of 1, 2, 4, 8, …, does it take?",
    unit="GPUs",
    measure=lambda answer: answer.value,
    how="predicted",
    tolerance=0.0,
    hints=("20 bytes per parameter over N come first. What else is there in a step?",),
    solution_text="20 bytes for each of 70.6 billion parameters are 82 GiB on 16 GPUs. It takes 32.",
    slips=(
        (lambda answer: answer.value // 2, "16P/N would fit there. AdamW's temporaries would not."),
        (lambda answer: answer.value // 4, "There the sharded state alone is twice what a GPU has."),
        (lambda answer: 2 * answer.value, "Half as many are enough."),
    ),
)

q13d = Exercise(
    name="q13d",
    question="How many GiB does each GPU save when their number doubles?",
    unit="GiB",
    measure=lambda fewer, more: _peak_gib(fewer) - _peak_gib(more),
    how="predicted",
    tolerance=0.1,
    hints=("Only sharded bytes are divided by N. How many GiB are sharded here, and at the peak?",),
    solution_text="Half of the sharded parameters and Adam's states. Everything else is there on any number of GPUs.",
    slips=(
        (lambda fewer, more: _peak_gib(fewer) / 2, "That is half of everything; N divides the sharded part alone."),
        (lambda fewer, more: _state_gib(fewer, 12), "That is all of the sharded state; half of it goes."),
        (lambda fewer, more: _state_gib(fewer, 8), "The gradients are not all there: this peak is early in backward."),
    ),
)
