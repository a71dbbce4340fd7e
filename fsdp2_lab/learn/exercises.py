"""The exercises of the series, one per chapter."""

from ..contract.units import MIB
from ..lab.runs import Run
from .exercise import Exercise


def parameters(run: Run) -> int:
    """The model's number of parameters, as the stage `meta` noted it."""
    return run.noted("parameters")[0]


def mib_per_parameter(run: Run, bytes_each: float) -> float:
    return bytes_each * parameters(run) / MIB


q00 = Exercise(
    name="q00",
    question="How many MiB does rank 0 still hold when training has ended?",
    unit="MiB",
    measure=lambda run: run.stage("train")[0].bytes_after / MIB,
    tolerance=0.06,
    hint_text="zero_grad frees the gradients; parameters and Adam's two states stay, 4 bytes each, on N ranks.",
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

q03 = Exercise(
    name="q03",
    question="Each rank r brings a list filled with r. What number stands in rank 0's part after the reduce-scatter?",
    unit="",
    measure=lambda run: run.noted("after_reduce_scatter_sum")[0][0],
    tolerance=0.0,
    hint_text="Reduce means that the lists are added, element by element, over all ranks.",
    solution_text="0 + 1 + … + (N - 1). Every rank gets its own part of the sum, and each part is the same here.",
    slips=((lambda run: run.ranks, "That counts the ranks; the elements are added."),),
)

q04 = Exercise(
    name="q04",
    question="How many MiB does every rank allocate when the model is built in the ordinary way?",
    unit="MiB",
    measure=lambda run: run.stage("ordinary")[0].bytes_after / MIB,
    tolerance=0.02,
    hint_text="The whole model, on every rank: its parameters times 4 bytes.",
    solution_text="All parameters at 4 bytes each, once per rank. On one host that is N copies in the same memory.",
    slips=(
        (
            lambda run: run.stage("ordinary")[0].bytes_after / MIB / 2,
            "Neither divided by two ranks nor in bfloat16 yet: every rank builds all of it, in float32.",
        ),
    ),
)

q05 = Exercise(
    name="q05",
    question="How many MiB of parameters does rank 0 hold after fully_shard?",
    unit="MiB",
    measure=lambda run: run.stage("allocate")[0].bytes_after / MIB,
    tolerance=0.02,
    hint_text="Parameters times 4 bytes, divided by the number of ranks.",
    solution_text="4 bytes per parameter divided by N. Each parameter is cut along its first dimension.",
    slips=(
        (lambda run: mib_per_parameter(run, 4), "That is every parameter on every rank: data parallelism."),
        (lambda run: mib_per_parameter(run, 16) / run.ranks, "No gradient and no optimizer state exists yet."),
    ),
)

q06 = Exercise(
    name="q06",
    question="Weights are random, so rank 0 makes a full copy. What is rank 0's peak in the stage load?",
    unit="MiB",
    measure=lambda run: run.stage("load")[0].peak_bytes / MIB,
    tolerance=0.05,
    hint_text="Rank 0 has the full copy while the shards are being filled.",
    solution_text="The full copy, 4 bytes per parameter, and rank 0's own shards beside it.",
    slips=(
        (lambda run: mib_per_parameter(run, 4), "That is the copy alone; rank 0 also fills its own shards."),
        (
            lambda run: mib_per_parameter(run, 8),
            "That is two whole models; rank 0 keeps a share of the second.",
        ),
        (lambda run: mib_per_parameter(run, 4) / run.ranks, "That is any other rank; rank 0 has the full copy too."),
    ),
)

q07 = Exercise(
    name="q07",
    question="With checkpointing, how many MiB are held between forward and backward?",
    unit="MiB",
    measure=lambda run: held_between(run) / MIB,
    tolerance=0.05,
    hint_text="Count tensors of batch x seq x hidden: each block's input, the last one's output, two in the last norm.",
    solution_text="4bsh for each of L + 3 tensors, and 4bsV for the logits. 2bshL counts L of them, in bfloat16.",
    slips=(
        (lambda run: boundary_bytes(run) / MIB, "Those are the blocks' inputs. After the last block there is more."),
        (lambda run: boundary_bytes(run) / MIB / 2, "That is bfloat16, as in the article; this run is in float32."),
        (lambda run: (boundary_bytes(run) + logits_bytes(run)) / MIB, "What does the last norm keep for its backward?"),
    ),
)


def boundary_bytes(run: Run) -> int:
    """4bshL: the inputs of all blocks in float32, from the sizes that the stage `forward` noted."""
    size = run.noted("sizes")[0]
    return 4 * size["batch"] * size["seq"] * size["hidden"] * size["blocks"]


def logits_bytes(run: Run) -> int:
    size = run.noted("sizes")[0]
    return 4 * size["batch"] * size["seq"] * size["vocab"]


def held_between(run: Run) -> int:
    """Bytes that forward leaves for backward, on rank 0."""
    row = run.stage("forward")[0]
    return row.bytes_after - row.bytes_before


q08 = Exercise(
    name="q08",
    question="At how many MiB does a rank of the sharded run peak, at the same global batch?",
    unit="MiB",
    measure=lambda many, one: many.peak_bytes / MIB,
    tolerance=0.15,
    hint_text="States are divided by N, and so is the batch. Which bytes are not divided?",
    solution_text="More than 1/N of one rank's peak: gathered blocks and the reduce-scatter's buffers are not divided.",
    slips=((lambda many, one: one.peak_bytes / MIB, "That is one rank alone; here N ranks divide states and batch."),),
)
