"""The article's formula, M = 16P/N + 2bshL + O, and what its O consists of in a given prediction."""

from ..contract.units import format_bytes
from .shapes import Shape
from .sharding import Job

OVERHEAD_BYTES = 6_500_000_000  # as the article gives it: 6.5 GB for any model and any job
FORMULA = "16P/N + 2bshL + O"
STATE = ("sharded_parameters", "sharded_gradients", "optimizer")


def article_account(shape: Shape, job: Job, terms: dict[str, int]) -> dict:
    """The article's terms in bytes, and under `overhead_is` what `terms` have beside its first two.

    `overhead_is` adds up to the predicted peak less 16P/N and 2bshL: a name and the bytes for each kind. It is
    below zero where the peak falls at a moment without some of what the formula counts.
    """
    state = 16 * shape.parameters // job.ranks
    boundaries = 2 * job.batch * job.seq * shape.hidden * shape.layers
    overhead_is = {
        "sharded state at the peak, less 16P/N": sum(terms[name] for name in STATE) - state,
        "activations at the peak, less 2bshL": terms["activations"] - boundaries,
    }
    overhead_is |= {name: size for name, size in terms.items() if name not in (*STATE, "activations")}
    return {
        "formula": FORMULA,
        "state_bytes": state,
        "boundary_bytes": boundaries,
        "overhead_bytes": OVERHEAD_BYTES,
        "peak_bytes": state + boundaries + OVERHEAD_BYTES,
        "overhead_is": overhead_is,
    }


def describe_article(account: dict) -> list[str]:
    """The formula with its own O, and what stands in O's place."""
    names = ("state_bytes", "boundary_bytes", "overhead_bytes")
    terms = " + ".join(format_bytes(account[name]) for name in names)
    overhead_is = account["overhead_is"]
    return [
        f"article: {FORMULA} = {terms} = {format_bytes(account['peak_bytes'])}",
        f"by the account its O is {format_bytes(sum(overhead_is.values()))}:",
        *(f"  {name:<40}{format_bytes(size):>12}" for name, size in overhead_is.items() if size),
    ]
