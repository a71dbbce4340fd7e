"""The exercises of chapter 08: the whole program on one rank and on N."""

from ..contract.units import MIB
from .exercise import Exercise

q08a = Exercise(
    name="q08a",
    question="At how many MiB does a rank of the sharded run peak, at the same global batch?",
    unit="MiB",
    measure=lambda many, one: many.peak_bytes / MIB,
    tolerance=0.15,
    hints=("States are divided by N, and so is the batch. Which bytes are not divided?",),
    solution_text="More than 1/N of one rank's peak: gathered blocks and the reduce-scatter's buffers are not divided.",
    slips=((lambda many, one: one.peak_bytes / MIB, "That is one rank alone; here N ranks divide states and batch."),),
)
