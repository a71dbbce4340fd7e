"""The exercises of chapter 01: parameters, bytes for each, and what a change does to a peak."""

from ..contract.units import GIB
from .exercise import Exercise

q01a = Exercise(
    name="q01a",
    how="predicted",
    question="How many parameters has Llama-2 7B, in billions?",
    unit="billions",
    measure=lambda seven: seven.parameters / 1e9,
    tolerance=0.005,
    hints=("A block has four matrices of h × h, three of h × f and two norms of h; 32 blocks, an embedding, a head.",),
    solution_text="32 blocks of 202 million, and 131 million each for the embedding and the head.",
    slips=(
        (lambda seven: 7.0, "That is the name. Count it."),
        (lambda seven: (seven.parameters - 32000 * 4096) / 1e9, "Embedding and head are two matrices of v × h here."),
        (lambda seven: (seven.parameters - 2 * 32000 * 4096) / 1e9, "That is the blocks alone."),
    ),
)

q01b = Exercise(
    name="q01b",
    question="A weight in bfloat16 under torch's AdamW: how many bytes for each of its numbers, gradient included?",
    unit="bytes",
    measure=lambda run: sum(run.noted("bytes_each")[0]["bfloat16"].values()),
    tolerance=0.0,
    hints=("AdamW makes its two states like the parameter. Does it make a master copy?",),
    solution_text="2 each for the weight, its gradient and both states. A float32 master copy is yours to keep.",
    slips=(
        (lambda run: 16, "That is with a master copy and states in float32, which torch's AdamW does not make."),
        (lambda run: 12, "Its states have the parameter's dtype: 2 bytes each, not 4."),
        (lambda run: 6, "It keeps two states for each number."),
    ),
)

q01c = Exercise(
    name="q01c",
    how="predicted",
    question="By how many GiB does a rank's peak grow when its batch goes from 1 sequence to 4?",
    unit="GiB",
    measure=lambda one, four: (four.peak_bytes - one.peak_bytes) / GIB,
    tolerance=0.1,
    hints=(
        "Two moments compete: 20P/N in the optimizer's step, and 12P/N + 2bshL + 14bsV in the loss.",
        "With 4 sequences the loss holds 9.4 + 4.0 + 6.8 GiB. And with 1, what is the peak?",
    ),
    solution_text="The peak has moved into the loss: logits, their log-softmax and two gradients, b·s·V numbers each.",
    slips=(
        (lambda one, four: 3.0, "That is 2bshL for three more sequences; another term of b·s is larger."),
        (lambda one, four: 0.0, "At a batch of 1 the peak is where no activations are; does it stay there?"),
    ),
)

q01d = Exercise(
    name="q01d",
    how="predicted",
    question="Which is the smallest number of ranks, of 1, 2, 4, 8, 16, …, at which a rank peaks under 20 GiB?",
    unit="ranks",
    measure=lambda accounts: min(each.ranks for each in accounts if each.peak_bytes < 20 * GIB),
    tolerance=0.0,
    hints=("16 bytes for each of 6.74 billion parameters, divided by N; and 4 more while AdamW works.",),
    solution_text="20 bytes for each parameter, divided by N, have to be under 20 GiB.",
    slips=((lambda accounts: 4, "25 GiB are 16P/N alone, and AdamW's temporaries come on top."),),
)
