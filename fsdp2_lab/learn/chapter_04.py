"""The exercises of chapter 04: what building a model takes, what meta leaves out, tied weights and buffers."""

from ..contract.units import GIB, MIB
from ..lab.runs import Run
from .evidence import parameters
from .exercise import Choice, Exercise, NoEvidence, Repair


def ordinary_gib(account, bytes_each: int = 4) -> float:
    """GiB of a host on which every rank builds the whole model."""
    return account.ranks * account.parameters * bytes_each / GIB


def meta_peak_mib(run: Run) -> float:
    """The stage's peak on rank 0. Raises `NoEvidence` where the run's meter saw none, as on CUDA."""
    peak_bytes = run.stage("meta")[0].peak_bytes
    if not peak_bytes or run.how.endswith("(CUDA)"):
        raise NoEvidence("The parameter is made in the host's memory, which this run's meter does not see.")
    return peak_bytes / MIB


def wrong_buffers(run: Run) -> int:
    """How many buffers differ from computed ones, on all ranks together."""
    return sum(len(names) for names in run.noted("wrong_buffers").values())


q04a = Exercise(
    name="q04a",
    question="How many MiB does every rank allocate when the model is built in the ordinary way?",
    unit="MiB",
    measure=lambda run: run.stage("ordinary")[0].bytes_after / MIB,
    tolerance=0.02,
    hints=("The whole model, on every rank.", "Its parameters times 4 bytes, divided by 2**20 and by nothing else."),
    solution_text="All parameters at 4 bytes each, once per rank. On one host that is N copies in the same memory.",
    slips=(
        (
            lambda run: run.stage("ordinary")[0].bytes_after / MIB / 2,
            "Neither divided by two ranks nor in bfloat16 yet: every rank builds all of it, in float32.",
        ),
        (
            lambda run: 4 * run.stage("ordinary")[0].bytes_after / MIB,
            "No gradient and no optimizer state exists yet: 4 bytes a parameter, not 16.",
        ),
    ),
)

q04b = Exercise(
    name="q04b",
    how="predicted",
    question="How many GiB do 8 ranks take on one host that build Llama-2 7B in float32, in the ordinary way?",
    unit="GiB",
    measure=ordinary_gib,
    tolerance=0.05,
    hints=("One copy is 6.74 billion times 4 bytes. Who has a copy?", "Every rank: eight copies of 25.1 GiB."),
    solution_text="Eight copies of 25.1 GiB. On meta it is none, until each rank loads its eighth of one copy.",
    slips=(
        (lambda account: ordinary_gib(account) / account.ranks, "That is one copy; every rank builds one."),
        (lambda account: ordinary_gib(account, 2), "That is bfloat16; float32 has 4 bytes."),
        (lambda account: ordinary_gib(account, 2) / account.ranks, "That is one copy in bfloat16."),
    ),
)

q04c = Exercise(
    name="q04c",
    question="At how many MiB does the stage meta peak?",
    unit="MiB",
    measure=meta_peak_mib,
    tolerance=0.1,
    hints=("One parameter at a time is made, then moved to meta.", "The largest: 50,257 × 768 numbers of 4 bytes."),
    solution_text="The embedding, 50,257 × 768 × 4 bytes: it is made, replaced by one on meta, and freed.",
    slips=(
        (lambda run: 4 * parameters(run) / MIB, "That would be all of them at once; each goes before the next comes."),
        (lambda run: 2 * meta_peak_mib(run), "Embedding and head are made one after the other, not together."),
        (lambda run: meta_peak_mib(run) / 2, "The model is in float32: 4 bytes."),
    ),
)

q04d = Choice(
    name="q04d",
    question="Are embedding and head of a tied model still one tensor after init_empty_weights?",
    options={"one": "they are one tensor", "two": "they are two tensors"},
    measure=lambda run: "one" if run.noted("tied")[0]["before tie_weights"]["one tensor"] else "two",
    hints=(
        "A parameter on meta is a new object. What becomes of a module that still holds the old one?",
        "Each registration makes a new parameter on meta, and the shared one is registered twice.",
    ),
    solution_text="Call model.tie_weights() after the with block, and once more after loading.",
    slips={"one": "They were, before each was replaced by a parameter of its own on meta."},
)

q04e = Repair(
    name="q04e",
    task="Every buffer is to equal the computed one, on every rank.",
    fault=wrong_buffers,
    unit="buffers",
    hints=(
        "Which of the three ways leaves buffers real?",
        "Build the model under init_empty_weights(), and do not call to_empty, which replaces real buffers, too.",
    ),
    solution_text=(
        "with init_empty_weights(): build; no to_empty. Loading gives memory to the parameters; "
        "model.to(device) moves the buffers at the end."
    ),
)
