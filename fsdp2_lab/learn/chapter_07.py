"""The exercises of chapter 07: what waits between forward and backward, what is computed again, and what to cut."""

from ..contract.units import MIB
from ..lab.runs import Run
from .evidence import parameters
from .exercise import Choice, Exercise, NoEvidence, Repair


def boundary_bytes(run: Run) -> int:
    """4bshL: the inputs of all blocks in float32, from the sizes that the stage `forward` noted."""
    size = run.noted("sizes")[0]
    return 4 * size["batch"] * size["seq"] * size["hidden"] * size["blocks"]


def logits_bytes(run: Run) -> int:
    size = run.noted("sizes")[0]
    return 4 * size["batch"] * size["seq"] * size["vocab"]


def held_between(run: Run) -> int:
    """Bytes that forward leaves for backward, on rank 0: of the stage `forward`, or of a run's last stage."""
    row = run.stage("forward" if "forward" in run.stage_names else run.stage_names[-1])[0]
    return row.bytes_after - row.bytes_before


def _seq(run: Run) -> int:
    return run.records[0].settings["seq"]


def seq_like_state(shorter: Run, longer: Run, bytes_each: float = 16) -> float:
    """The length at which the bytes for backward, by the slope of two runs, equal a rank's share of the state."""
    if _seq(shorter) == _seq(longer):
        raise NoEvidence("Both runs have the same sequence length; two lengths give a slope.")
    slope = (held_between(longer) - held_between(shorter)) / (_seq(longer) - _seq(shorter))
    return bytes_each * parameters(shorter) / shorter.ranks / slope


def calls_of(run: Run, module: str) -> int:
    """How often a module of the first block began a forward, as the stage `recompute` counted."""
    calls = run.noted("calls")[0]
    if module not in calls:
        raise NoEvidence(f"The blocks of this model have no {module}; the question is of Llama's.")
    return calls[module]


def more_flops(off: Run, on: Run) -> float:
    """By what percentage checkpointing raises a step's counted FLOPs."""
    without, with_it = (sum(run.noted("flops")[0].values()) for run in (off, on))
    if without == with_it:
        raise NoEvidence("Both runs counted the same; the first is launched with checkpointing=False.")
    return 100 * (with_it / without - 1)


def best_cut(off, on, unlogged, doubled) -> str:
    """The change that takes most off the peak: checkpointing, no logits, or twice the ranks."""
    left = {"a": on.peak_bytes, "b": off.peak_bytes - unlogged, "c": doubled.peak_bytes}
    return min(left, key=left.get)


def against_blocks(run: Run, on: Run) -> float:
    """How many MiB more or less a run holds for backward than one whose blocks are checkpointed."""
    for name in ("batch", "seq", "model"):
        if run.records[0].settings[name] != on.records[0].settings[name]:
            raise NoEvidence(f"The runs differ in `{name}`; launch both with the same settings.")
    return abs(held_between(run) - held_between(on)) / MIB


q07a = Exercise(
    name="q07a",
    question="With checkpointing, how many MiB are held between forward and backward?",
    unit="MiB",
    measure=lambda run: held_between(run) / MIB,
    tolerance=0.05,
    hints=(
        "A tensor of batch × seq × hidden in float32 is 4bsh bytes. How many of them are needed, and what else?",
        "Each of L blocks keeps its input. After them: the last one's output, two tensors in the last norm, logits.",
    ),
    solution_text="4bsh for each of L + 3 tensors, and 4bsV for the logits. 2bshL counts L of them, in bfloat16.",
    slips=(
        (lambda run: boundary_bytes(run) / MIB, "Those are the blocks' inputs. After the last block there is more."),
        (lambda run: boundary_bytes(run) / MIB / 2, "That is bfloat16, as in the article; this run is in float32."),
        (lambda run: (boundary_bytes(run) + logits_bytes(run)) / MIB, "What does the last norm keep for its backward?"),
        (
            lambda run: (boundary_bytes(run) * (1 + 1 / run.noted("sizes")[0]["blocks"]) + logits_bytes(run)) / MIB,
            "The last block's output counts. The norm after it keeps two tensors of that size besides.",
        ),
    ),
)

q07b = Exercise(
    name="q07b",
    question="Without checkpointing, at which length do the bytes held for backward equal a rank's sharded state?",
    unit="tokens",
    measure=seq_like_state,
    tolerance=0.05,
    hints=(
        "The bytes lie on a line through zero: what does one token more, in each sequence of the batch, add to them?",
        "The state is 16 bytes for each parameter, divided by the ranks. Divide it by a token's bytes times batch.",
    ),
    solution_text="16P/N over the bytes that one more token of a sequence costs. Above it, activations are the larger.",
    slips=(
        (lambda *runs: seq_like_state(*runs) * runs[0].ranks, "That is the whole state; a rank has 1/N of it."),
        (lambda *runs: seq_like_state(*runs, bytes_each=4), "Those are the parameters alone; the state is 16 bytes."),
        (lambda *runs: seq_like_state(*runs, bytes_each=12), "Gradients belong to the state, too: 16 bytes, not 12."),
        (
            lambda *runs: seq_like_state(*runs) * runs[0].records[0].settings["batch"],
            "That is the tokens of the whole batch; each of its sequences has a part of them.",
        ),
    ),
)

q07c = Exercise(
    name="q07c",
    question="How many times does a block's q_proj run in one step with checkpointing?",
    unit="",
    measure=lambda run: calls_of(run, "self_attn.q_proj"),
    tolerance=0.0,
    hints=("Once in forward. Whose forward runs in backward?",),
    solution_text="Once in forward and once in backward, which needs what q_proj made and forward threw away.",
    slips=(
        (lambda run: 1, "That is without checkpointing; here its output is thrown away and needed again."),
        (lambda run: 3, "Backward has products of its own, but they are not calls of the module."),
    ),
)

q07d = Exercise(
    name="q07d",
    question="By how many percent do a step's FLOPs grow with checkpointing?",
    unit="%",
    measure=more_flops,
    tolerance=0.03,
    hints=(
        "If forward is 1 and backward 2, a step is 3. Which part of that 1 is computed again?",
        "lm_head is in no block. And a block's down_proj comes after the last tensor that backward needs.",
    ),
    solution_text=(
        "Less than a third: lm_head is outside the blocks, and a forward that runs again ends at the last tensor "
        "that it has to save, before down_proj multiplies."
    ),
    slips=(
        (lambda off, on: 100 / 3, "That is all of forward again. Part of it needs no computing again."),
        (lambda off, on: 100.0, "Forward is a third of a step, not all of it."),
        (lambda off, on: 50.0, "That is forward against backward; the question is of the whole step."),
    ),
)

q07e = Repair(
    name="q07e",
    task="Make the stage hold what checkpointing of whole blocks holds.",
    fault=against_blocks,
    unit="MiB",
    tolerance=0.1,
    hints=(
        "How many inputs does a block keep for backward if each of its four children is checkpointed?",
        "A block's own checkpoint keeps the block's input and nothing inside: wrap one forward, not four.",
    ),
    solution_text=(
        "block.forward = partial(checkpoint, block.forward, use_reentrant=False), without the loop over children. "
        "Every checkpoint keeps its input: one per block, not four."
    ),
)

q07f = Choice(
    name="q07f",
    question="Which of these takes most off the peak of the 7B job?",
    options={
        "a": "checkpointing the blocks",
        "b": "a loss in chunks, so that no logits exist as a whole",
        "c": "twice as many GPUs",
    },
    measure=best_cut,
    how="predicted",
    hints=("Look at the largest term of the job as it is.", "Which of the three divides activations?"),
    solution_text="Activations are the largest term, and N does not divide them. Logits come next.",
    slips={
        "b": "Logits are the smaller of the two terms that grow with the batch, as long as nothing is checkpointed.",
        "c": "N divides the sharded state. What a rank's own batch leaves for backward stays whole.",
    },
)
