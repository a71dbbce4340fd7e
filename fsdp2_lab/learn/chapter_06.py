"""The exercises of chapter 06: what a loss proves, what comes untied, a dict that is spent, and what loading costs."""

from ..contract.units import MIB
from ..lab.runs import Run
from ..show.loading_figures import rises
from .evidence import mib_per_parameter, parameters
from .exercise import Choice, Exercise, NoEvidence, Repair


def peak_of_rank_0(run: Run) -> float:
    """In MiB. Raises `NoEvidence` on a GPU, whose allocator has no part in the full copy."""
    if run.records[0].device != "cpu":
        raise NoEvidence(
            "Rank 0's full copy is in its host's memory, and this peak is the GPU's; see the next section."
        )
    return run.stage("load")[0].peak_bytes / MIB


def loss_says(run: Run) -> str:
    """How the held-out loss changed when a row was spoiled. Raises `NoEvidence` where no row was."""
    ranks = [record.values for record in run.records]
    if not any("spoiled" in values and values["spoiled"]["differing"] for values in ranks):
        raise NoEvidence("No row was spoiled in this run; launch the stage bits.")
    before, after = (ranks[0][state]["loss"] for state in ("loaded", "spoiled"))
    return "nan" if after != after else "same" if after == before else "higher"


def counted_after(run: Run) -> int:
    """The model's parameters after loading. Raises `NoEvidence` for a model that ties nothing."""
    then = run.records[0].values.get("parameters_then")
    if then in (None, parameters(run)):
        raise NoEvidence("This model ties nothing; launch the stage load_untied with model='byte-llama-tied'.")
    return then


def rise_of_rank_0(run: Run) -> float:
    """In MiB. Raises `NoEvidence` where it says nothing of shards."""
    if run.ranks < 2 or run.records[0].device != "cpu":
        raise NoEvidence(
            "The host's memory shows it with two ranks or more on a CPU; on a GPU the shards are not in it."
        )
    return rises(run)[0] / MIB


q06a = Exercise(
    name="q06a",
    question="Weights are random, so rank 0 makes a full copy. What is rank 0's peak in the stage load?",
    unit="MiB",
    measure=peak_of_rank_0,
    tolerance=0.05,
    hints=(
        "Rank 0 has the full copy until the last shard is filled.",
        "The full copy has 4 bytes per parameter. What else does rank 0 hold at the end of the stage?",
    ),
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

q06b = Choice(
    name="q06b",
    question="What is the held-out loss after row 383 of the embedding is lost?",
    options={"same": "the same to the last digit", "higher": "higher", "nan": "not a number"},
    measure=loss_says,
    hints=(
        "Which tokens does the held-out text have? It is bytes.",
        "A row of the embedding is read when its token occurs, and never otherwise.",
    ),
    solution_text="No text has that token, so nothing reads the row, and the loss cannot know of it. Tied, it would be "
    "the head's row, too, which gives that token its score everywhere, and the loss would rise.",
    slips={
        "higher": "It would be, if the text had that token, or the head were tied. Which tokens does a text have?",
        "nan": "A vector of zeros is a vector like others; it would only be a wrong one, and only if it were read.",
    },
)

q06c = Exercise(
    name="q06c",
    how="counted",
    question="How many parameters does the model have after loading?",
    unit="",
    measure=counted_after,
    tolerance=0.0,
    hints=(
        "Tied, embedding and head are one parameter, which is counted once.",
        "Untied, the 384 × 256 of the head are counted, too.",
    ),
    solution_text="The head has become a parameter of its own, as in byte-llama, until the first forward.",
    slips=((lambda run: parameters(run), "That is the tied model. Is it still one?"),),
)

q06d = Repair(
    name="q06d",
    task="Let the stage load twice.",
    fault=lambda run: 2 - run.records[0].values.get("loaded", 0),
    unit="loads",
    hints=(
        "After the first load, print the type of one of the dict's values on rank 0.",
        "set_model_state_dict puts DTensors into the dict that it gets. Give it another dict with the same tensors.",
    ),
    solution_text="dict(weights) is a new dict of the same tensors: no weight is copied, and `weights` stays as it is.",
)

q06e = Exercise(
    name="q06e",
    question="By how much does rank 0's resident memory rise when each rank reads its slices?",
    unit="MiB",
    measure=rise_of_rank_0,
    tolerance=0.2,
    hints=(
        "What does rank 0 keep at the end of the stage?",
        "Its shards: the file's bytes divided by the number of ranks. One slice at a time comes on top.",
    ),
    solution_text="Its own shards, a slice that is being copied, and a little for the plan.",
    slips=(
        (lambda run: mib_per_parameter(run, 4), "That is the whole model, and nobody reads it whole now."),
        (
            lambda run: mib_per_parameter(run, 4) * (1 + 1 / run.ranks),
            "That was rank 0 when it read for all: the whole model and its own shards.",
        ),
    ),
)
