"""The exercises of chapter 04: the ordinary way to build a model, and the meta device."""

from ..contract.units import MIB
from .exercise import Exercise

q04a = Exercise(
    name="q04a",
    question="How many MiB does every rank allocate when the model is built in the ordinary way?",
    unit="MiB",
    measure=lambda run: run.stage("ordinary")[0].bytes_after / MIB,
    tolerance=0.02,
    hints=("The whole model, on every rank: its parameters times 4 bytes.",),
    solution_text="All parameters at 4 bytes each, once per rank. On one host that is N copies in the same memory.",
    slips=(
        (
            lambda run: run.stage("ordinary")[0].bytes_after / MIB / 2,
            "Neither divided by two ranks nor in bfloat16 yet: every rank builds all of it, in float32.",
        ),
    ),
)
