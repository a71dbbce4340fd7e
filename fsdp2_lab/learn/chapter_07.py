"""The exercises of chapter 07: what waits between forward and backward."""

from ..contract.units import MIB
from ..lab.runs import Run
from .exercise import Exercise

q07a = Exercise(
    name="q07a",
    question="With checkpointing, how many MiB are held between forward and backward?",
    unit="MiB",
    measure=lambda run: held_between(run) / MIB,
    tolerance=0.05,
    hints=("Count tensors of batch x seq x hidden: each block's input, the last one's output, two in the last norm.",),
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
