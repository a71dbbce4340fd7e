"""The exercises of chapter 03: ranks, the mesh and the two collectives."""

from .exercise import Exercise

q03a = Exercise(
    name="q03a",
    question="Each rank r brings a list filled with r. What number stands in rank 0's part after the reduce-scatter?",
    unit="",
    measure=lambda run: run.noted("after_reduce_scatter_sum")[0][0],
    tolerance=0.0,
    hints=("Reduce means that the lists are added, element by element, over all ranks.",),
    solution_text="0 + 1 + … + (N - 1). Every rank gets its own part of the sum, and each part is the same here.",
    slips=((lambda run: run.ranks, "That counts the ranks; the elements are added."),),
)
