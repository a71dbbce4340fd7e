"""The shape of a model: what its config says of sizes, and from it every parameter by group, without torch."""

from dataclasses import dataclass
from functools import cached_property
from math import prod

from ..contract.errors import UsageError
from ..contract.model_source import BUILT_IN, find_model
from ..contract.published import PUBLISHED

Parameters = dict[str, tuple[int, ...]]  # name → shape

# A config may leave these out; transformers then takes these values.
_DEFAULTS = {
    "llama": {"tie_word_embeddings": False},
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096, "tie_word_embeddings": False},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128, "tie_word_embeddings": False},
    "gpt2": {"tie_word_embeddings": True, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1},
}
_GPT2_NAMES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
}


@dataclass(frozen=True)
class Shape:
    """Sizes of a causal language model. `heads`, `kv_heads` and `head_dim` are attention's; `mlp` is its inner width.

    `dropout` holds the probabilities on embeddings, attention and residuals. `activation` is GPT-2's. `window` is
    attention's sliding window in tokens, `None` for all tokens before.
    """

    family: str
    vocab: int
    hidden: int
    mlp: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    positions: int | None
    tied: bool
    attention_bias: bool
    mlp_bias: bool
    dropout: tuple[float, float, float]
    activation: str
    window: int | None

    @cached_property
    def block(self) -> Parameters:
        """The parameters of one block."""
        return _gpt2_block(self) if self.family == "gpt2" else _llama_block(self)

    @cached_property
    def root(self) -> Parameters:
        """The parameters outside the blocks; a tied weight counts once."""
        h, v = self.hidden, self.vocab
        head = {} if self.tied else {"lm_head": (v, h)}
        if self.family == "gpt2":
            return {"wte": (v, h), "wpe": (self.positions, h), "ln_f.weight": (h,), "ln_f.bias": (h,), **head}
        return {"embed_tokens": (v, h), "norm": (h,), **head}

    @property
    def parameters(self) -> int:
        return count(self.root) + self.layers * count(self.block)


def count(parameters: Parameters) -> int:
    """How many numbers a group of parameters holds."""
    return sum(prod(shape) for shape in parameters.values())


def known_models() -> list[str]:
    """The names that need no folder."""
    return [*BUILT_IN, *PUBLISHED]


def find_shape(model: str) -> Shape:
    """The shape of a known model, or of a Hugging Face folder with a `config.json`.

    Raises `UsageError` for a name or folder that is not there, and for a config that does not say its sizes.
    """
    return read_shape(find_model(model, "random").config, model)


def read_shape(config: dict, model: str) -> Shape:
    """The shape that a Hugging Face config describes; `model` names it in messages. Raises `UsageError`."""
    family = config.get("model_type")
    if family not in _DEFAULTS:
        raise UsageError(
            f"{model}: no closed form for model_type {family!r}, only for {', '.join(_DEFAULTS)}; "
            "`fsdp2-lab dryrun` takes any causal language model."
        )
    for name in ("attention_dropout", "use_sliding_window"):  # the second makes blocks of two kinds
        if config.get(name) and family != "gpt2":
            raise UsageError(f"{model}: no closed form with `{name}`; `fsdp2-lab dryrun` takes it.")
    fields = _DEFAULTS[family] | {name: value for name, value in config.items() if value is not None}
    if family == "qwen3" or config.get("sliding_window", 0) is None:
        fields["sliding_window"] = None

    def size(name: str, default: int | None = None) -> int:
        name = _GPT2_NAMES.get(name, name) if family == "gpt2" and name not in config else name
        value = fields.get(name, default)
        if value is None:
            raise UsageError(f"{model}: its config has no `{name}`; expected a whole number above 0.")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UsageError(f"{model}: its config says `{name}`: {value!r}; expected a whole number above 0.")
        return value

    def probability(name: str) -> float:
        value = fields.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise UsageError(f"{model}: its config says `{name}`: {value!r}; expected a number from 0 to below 1.")
        return float(value)

    hidden, heads = size("hidden_size"), size("num_attention_heads")
    kv_heads = heads if family == "gpt2" else size("num_key_value_heads", heads)
    if (family == "gpt2" or "head_dim" not in fields) and hidden % heads:
        raise UsageError(f"{model}: `hidden_size` {hidden} does not divide into {heads} attention heads.")
    if heads % kv_heads:
        raise UsageError(f"{model}: {heads} attention heads do not share {kv_heads} key and value heads evenly.")
    return Shape(
        family=family,
        vocab=size("vocab_size"),
        hidden=hidden,
        mlp=size("intermediate_size", 4 * hidden if family == "gpt2" else None),
        layers=size("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=hidden // heads if family == "gpt2" else size("head_dim", hidden // heads),
        positions=size("max_position_embeddings") if family == "gpt2" or "max_position_embeddings" in fields else None,
        tied=bool(fields["tie_word_embeddings"]),
        attention_bias=family == "gpt2" or bool(fields.get("attention_bias")),
        mlp_bias=family == "gpt2" or bool(fields.get("mlp_bias")),
        dropout=tuple(probability(name) for name in ("embd_pdrop", "attn_pdrop", "resid_pdrop")),
        activation=fields.get("activation_function", "gelu_new"),
        window=None if fields.get("sliding_window") is None else size("sliding_window"),
    )


def _llama_block(s: Shape) -> Parameters:
    h, f, q, kv = s.hidden, s.mlp, s.heads * s.head_dim, s.kv_heads * s.head_dim
    block = {"q_proj": (q, h), "k_proj": (kv, h), "v_proj": (kv, h), "o_proj": (h, q)}
    if s.attention_bias and s.family != "mistral":
        block |= {"q_bias": (q,), "k_bias": (kv,), "v_bias": (kv,), "o_bias": (h,)}
    if s.family == "qwen3":
        block |= {"q_norm": (s.head_dim,), "k_norm": (s.head_dim,)}
    block |= {"gate_proj": (f, h), "up_proj": (f, h), "down_proj": (h, f)}
    if s.mlp_bias and s.family == "llama":
        block |= {"gate_bias": (f,), "up_bias": (f,), "down_bias": (h,)}
    return block | {"input_layernorm": (h,), "post_attention_layernorm": (h,)}


def _gpt2_block(s: Shape) -> Parameters:
    h, f = s.hidden, s.mlp
    return {
        "ln_1.weight": (h,),
        "ln_1.bias": (h,),
        "c_attn": (h, 3 * h),
        "c_attn.bias": (3 * h,),
        "attn.c_proj": (h, h),
        "attn.c_proj.bias": (h,),
        "ln_2.weight": (h,),
        "ln_2.bias": (h,),
        "c_fc": (h, f),
        "c_fc.bias": (f,),
        "mlp.c_proj": (f, h),
        "mlp.c_proj.bias": (h,),
    }
