"""Why the peak falls where it does, in a sentence."""

from .shapes import Shape
from .sharding import Job
from .walk import Peak


def why(peak: Peak, shape: Shape, job: Job) -> str:
    """What is special about the moment of the peak."""
    place = peak.at
    if place.startswith("backward of block"):
        return _in_a_block(int(place.rsplit(" ", 1)[1]), shape, job)
    if place.startswith("forward of block"):
        return "nothing is freed from block to block, and the last one adds its own working memory"
    if place.startswith("the loss"):
        return f"logits, log-softmax and two gradients, each of batch × seq × {shape.vocab:,}, are there at once"
    if place.startswith("backward of the embedding") and job.granularity == "model":
        return "the whole model's gradients meet their float32 copies for the one reduce-scatter"
    if place.startswith("backward of the embedding"):
        return "the embedding's whole gradients meet their float32 copies for the reduce-scatter"
    if place.endswith("lm_head"):
        return f"logits of batch × seq × {shape.vocab:,} come on top of all that the forward keeps"
    if place.startswith("the optimizer"):
        at_once = job.foreach and not job.fused
        return "AdamW takes square roots of a whole shard at once" if at_once else "all sharded state is there"
    return "the root is gathered there"


def _in_a_block(index: int, shape: Shape, job: Job) -> str:
    here = ["what it recomputes"] if job.checkpointing else []
    if job.granularity == "model":
        here += ["the gradients of all blocks above"]
        return f"{' and '.join(here)} come on top of the whole model's parameters"
    here += ["its whole parameters and gradients"]
    if index and job.reshard and job.ranks > 1:
        here.append(f"block {index - 1}'s parameters on their way")
    if index < shape.layers - 1:
        here.append(f"block {index + 1}'s gradients still being reduced")
    if index > shape.layers // 2:
        kept = "the inputs of nearly all blocks" if job.checkpointing else "nearly all activations"
    else:
        kept = "nearly all sharded gradients"
    return f"{', '.join(here)} come on top of {kept}"
