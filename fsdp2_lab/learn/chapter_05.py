"""The exercises of chapter 05: what a rank holds after sharding."""

from ..contract.units import MIB
from .evidence import mib_per_parameter
from .exercise import Exercise

q05a = Exercise(
    name="q05a",
    question="How many MiB of parameters does rank 0 hold after fully_shard?",
    unit="MiB",
    measure=lambda run: run.stage("allocate")[0].bytes_after / MIB,
    tolerance=0.02,
    hints=("Parameters times 4 bytes, divided by the number of ranks.",),
    solution_text="4 bytes per parameter divided by N. Each parameter is cut along its first dimension.",
    slips=(
        (lambda run: mib_per_parameter(run, 4), "That is every parameter on every rank: data parallelism."),
        (lambda run: mib_per_parameter(run, 16) / run.ranks, "No gradient and no optimizer state exists yet."),
    ),
)
