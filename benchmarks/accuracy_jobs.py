"""The jobs that predictions are held against: a draw over every axis, in which each value of an axis comes as often.

Nothing is chosen: each axis is a deck of its values, dealt out evenly and shuffled once with a fixed seed. A job that
would take too long on two cores gets half its batch, or half its sequence, until it does not.
"""

import random
from dataclasses import dataclass

from fsdp2_lab.predict.shapes import read_shape

SEED = 2
JOBS = 44
MOST_WORK = 4e9  # parameters times tokens of all ranks: some seconds a step on two cores
AXES = {
    "family": ("llama", "qwen3", "mistral", "gpt2"),
    "hidden": (64, 128, 256, 512),
    "layers": (2, 3, 4, 6, 8, 12),
    "shared_heads": (False, True),  # grouped queries: two for each key
    "tied": (False, True),
    "vocab": (384, 391, 4096, 32000),
    "odd_mlp": (False, True),  # rows that divide by no number of ranks
    "dropout": (0.0, 0.1),  # GPT-2's alone
    "batch": (1, 2, 4, 8),
    "seq": (64, 128, 256, 512, 1024),
    "ranks": (1, 2, 3, 4),
    "checkpointing": (True, False),
    "reshard": (True, False),
    "compute_dtype": ("float32", "float32", "float32", "bfloat16"),
    "optimizer": ("adamw", "adamw, foreach", "sgd"),
}


@dataclass(frozen=True)
class Job:
    """A model's config, the settings of its script, its ranks and its optimizer."""

    config: dict
    settings: dict
    ranks: int
    optimizer: str

    @property
    def name(self) -> str:
        shape = read_shape(self.config, "job")
        heads = "MHA" if shape.heads == shape.kv_heads else "GQA"
        model = f"{shape.family} {shape.layers}×{shape.hidden}, {heads}, {'tied' if shape.tied else 'untied'}"
        dropout = f", dropout {shape.dropout[1]:g}" if any(shape.dropout) else ""
        return f"{model}, vocabulary {shape.vocab:,}, MLP {shape.mlp}{dropout}"


def jobs(count: int = JOBS) -> list[Job]:
    """The draw."""
    dealer, decks = random.Random(SEED), {}
    for axis, values in AXES.items():
        deck = [values[place % len(values)] for place in range(count)]
        dealer.shuffle(deck)
        decks[axis] = deck
    return [_job(**{axis: deck[place] for axis, deck in decks.items()}) for place in range(count)]


def _job(ranks: int, optimizer: str, batch: int, seq: int, checkpointing, reshard, compute_dtype: str, **model) -> Job:
    config = _config(**model)
    parameters = read_shape(config, "job").parameters
    while parameters * batch * seq * ranks > MOST_WORK and seq > 64:
        batch, seq = (batch // 2, seq) if batch > 1 else (batch, seq // 2)
    settings = dict(batch=batch, seq=seq, checkpointing=checkpointing, reshard=reshard, compute_dtype=compute_dtype)
    return Job(config, settings, ranks, optimizer)


def _config(family, hidden, layers, shared_heads, tied, vocab, odd_mlp, dropout) -> dict:
    heads, mlp = max(2, hidden // 32), 11 * hidden // 4 - odd_mlp
    ids = {"bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
    common = {"model_type": family, "vocab_size": vocab, "tie_word_embeddings": tied, **ids}
    if family == "gpt2":
        sizes = {"n_embd": hidden, "n_layer": layers, "n_head": heads, "n_inner": mlp, "n_positions": 1024}
        return common | sizes | dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), dropout)
    return common | {
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 2 if shared_heads else heads,
        "head_dim": hidden // heads,
        "max_position_embeddings": 1024,
        **({"sliding_window": None} if family == "mistral" else {}),
    }
