"""The exercises of chapter 00: start here: what training leaves behind."""

from ..contract.units import MIB
from .evidence import mib_per_parameter
from .exercise import Exercise

q00a = Exercise(
    name="q00a",
    question="How many MiB does rank 0 still hold when training has ended?",
    unit="MiB",
    measure=lambda run: run.stage("train")[0].bytes_after / MIB,
    tolerance=0.06,
    hints=("zero_grad frees the gradients; parameters and Adam's two states stay, 4 bytes each, on N ranks.",),
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
