"""The jobs that predictors are asked about, the predictors, and what each one's number has and lacks."""

from math import prod
from typing import NamedTuple

from fsdp2_lab.contract.model_source import BUILT_IN
from fsdp2_lab.contract.published import PUBLISHED
from fsdp2_lab.contract.units import GIB, MIB
from fsdp2_lab.predict.shapes import find_shape

CONFIGS = BUILT_IN | PUBLISHED


class Job(NamedTuple):
    """One job: a known model under FSDP, or ZeRO-3, with AdamW. `unit` is what its table counts in."""

    title: str
    model: str
    ranks: int
    batch: int
    seq: int
    compute_dtype: str
    device: str
    unit: tuple[str, int]

    def settings(self, checkpointing: bool) -> dict:
        return {
            "batch": self.batch,
            "seq": self.seq,
            "compute_dtype": self.compute_dtype,
            "checkpointing": checkpointing,
        }

    def spec(self, checkpointing: bool) -> dict:
        """The job as a peer's script reads it."""
        shape, config = find_shape(self.model), CONFIGS[self.model]
        sizes = [prod(size) for size in (*shape.root.values(), *shape.block.values())]
        names = {"model": self.model, "config": config, "ranks": self.ranks, **self.settings(checkpointing)}
        return names | {"parameters": shape.parameters, "largest_layer": max(sizes)}


class Peer(NamedTuple):
    """A predictor: the file in `peer_runs/` that asks it, the package it needs, what its number has and lacks.

    `more` are arguments for the file after the job.
    """

    name: str
    script: str
    package: str
    install: str
    counts: str
    lacks: str
    more: tuple[str, ...] = ()


JOBS = [
    Job("Llama-2-7B on 8 ranks, batch 1, 4,096 tokens, bfloat16 compute", "llama-2-7b", 8, 1, 4096, "bfloat16", "cuda",
        ("GiB", GIB)),
    Job("The workbook's default job on 2 ranks: byte-llama, batch 4, 128 tokens, float32", "byte-llama", 2, 4, 128,
        "float32", "cpu", ("MiB", MIB)),
]  # fmt: skip
PEERS = [
    Peer(
        "torch FSDPMemTracker",
        "mem_tracker.py",
        "torch",
        "pip install torch",
        "every tensor that an operation returns, on a fake CPU and with fake ranks, every layer played",
        "kernels' own buffers, an allocator's rounding; on a CPU attention keeps a copy that CUDA's kernels do not",
    ),
    Peer(
        "torch FSDPMemTracker, clipping",
        "mem_tracker.py",
        "torch",
        "pip install torch",
        "the same in a loop that clips gradients, and with them tensors of the gradients' unsharded shapes: "
        "DTensor makes them to find out a result's shape, and no real run has them",
        "the same",
        ("clip",),
    ),
    Peer(
        "llm-analysis",
        "llm_analysis_train.py",
        "llm_analysis",
        "pip install llm-analysis",
        "18 bytes per parameter over N, of one embedding table; activations of all layers, or their inputs; "
        "logits once; all in 16 bits, since it knows no wider compute",
        "gathered parameters, collectives' buffers, the layer that is recomputed, the loss's copies of the logits",
    ),
    Peer(
        "EleutherAI cookbook",
        "cookbook_calculator.py",
        "",
        "git clone https://github.com/EleutherAI/cookbook and pass its folder with --cookbook",
        "18 bytes per parameter over N; ZeRO-3's buckets at DeepSpeed's default sizes, 1.5 billion elements; "
        "34 bytes (66 in float32) per element of every layer's input; without checkpointing attention's matrices too",
        "logits and loss; kernels that keep no attention matrices; checkpointing of whole layers",
    ),
    Peer(
        "DeepSpeed ZeRO-3 estimate",
        "deepspeed_estimate.py",
        "deepspeed",
        "pip install deepspeed",
        "18 bytes per parameter over N, and 4 bytes per parameter of the largest layer",
        "activations, logits, gathered layers, buffers: it is one number for any batch",
    ),
    Peer(
        "accelerate estimate-memory",
        "accelerate_estimate.py",
        "accelerate",
        "pip install accelerate",
        "in float32 16 bytes per parameter; in mixed precision the greatest of its parts, 8 bytes per parameter",
        "sharding, activations: it is one number for any number of ranks and any batch",
    ),
]
OURS = {
    "measured (CPU)": (
        "the highest that the allocator had given out in the second step, on the lower of the two ranks",
        "memory that torch's allocator did not give out",
    ),
    "fsdp2-lab dryrun": (
        "every storage of the unedited script's second step, with this device's kernels and collectives",
        "a GPU's context, NCCL's buffers, fragmentation",
    ),
    "fsdp2-lab account": ("every term of the same step, from formulas", "the same"),
    "the article, 16P/N + 2bshL + O": (
        "16 bytes per parameter over N; the inputs of all layers in 16 bits; O = 6.5 GB for any job",
        "nothing by intention: O stands for all else",
    ),
}
