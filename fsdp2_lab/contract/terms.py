"""What bytes are for: the names under which predictions and measurements count them, in the order of every table."""

TERMS = (
    "sharded_parameters",
    "sharded_gradients",
    "optimizer",
    "unsharded_parameters",
    "all_gather",
    "reduce_scatter",
    "activations",
    "logits",
    "temporaries",
    "other",
)


def in_order(terms: dict[str, int]) -> dict[str, int]:
    """The terms that are there, in the order of `TERMS`."""
    return {term: terms[term] for term in TERMS if terms.get(term)}
