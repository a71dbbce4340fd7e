"""The exercises of chapter 06: what loading costs rank 0."""

from ..contract.units import MIB
from .evidence import mib_per_parameter
from .exercise import Exercise

q06a = Exercise(
    name="q06a",
    question="Weights are random, so rank 0 makes a full copy. What is rank 0's peak in the stage load?",
    unit="MiB",
    measure=lambda run: run.stage("load")[0].peak_bytes / MIB,
    tolerance=0.05,
    hints=("Rank 0 has the full copy while the shards are being filled.",),
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
