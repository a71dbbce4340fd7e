"""One block's forward, family by family, as transformers writes it."""

from .attention import attend
from .layers import dropout, gelu, heads_apart, layer_norm, linear, rms_norm, rotate
from .shapes import Shape
from .tape import SAME, Tape, Value


def block_forward(t: Tape, shape: Shape, seq: int, device: str, x: Value) -> Value:
    """The block's output of (batch, seq, hidden); x stays the caller's."""
    forward = _gpt2_block if shape.family == "gpt2" else _llama_block
    return forward(t, shape, seq, device, x)


def final_norm(t: Tape, shape: Shape, x: Value) -> Value:
    """The norm between the last block and lm_head."""
    t.part = "final norm"
    return layer_norm(t, x) if shape.family == "gpt2" else rms_norm(t, x)


def _llama_block(t: Tape, shape: Shape, seq: int, device: str, x: Value) -> Value:
    t.part = "norms"
    normed = rms_norm(t, x)

    t.part = "attention"
    query = _projected(t, shape, normed, "ah", "q_norm", "bsn")
    key = _projected(t, shape, normed, "gh", "k_norm", "bsk")
    value = linear(t, normed, "gh", "g" * ("v_bias" in shape.block))
    query_at, key_at = rotate(t, query), rotate(t, key)
    t.drop(query, key)
    mixed = attend(t, shape, seq, device, query_at, key_at, value)
    out = linear(t, mixed, "ha", "h" * ("o_bias" in shape.block))
    t.drop(mixed, query_at, key_at, value, normed)
    t.part = "norms"
    middle = t.op("add", [x, out], gradients=SAME)
    t.drop(out)
    normed = rms_norm(t, middle)
    t.part = "MLP"
    has_bias = "gate_bias" in shape.block
    gate = linear(t, normed, "fh", "f" * has_bias)
    active = t.op("silu", [gate], saves=[gate])
    t.drop(gate)
    up = linear(t, normed, "fh", "f" * has_bias)
    product = t.op("gate·up", [active, up], saves=[active, up])
    t.drop(active, up)
    down = linear(t, product, "hf", "h" * has_bias)
    t.drop(product, normed)
    t.part = "block inputs"
    out = t.op("add", [middle, down], gradients=SAME)
    t.drop(middle, down)
    return out


def _projected(t: Tape, shape: Shape, normed: Value, weight: str, norm: str, rows: str) -> Value:
    """Query or key with heads apart, normed in families that do so."""
    flat = linear(t, normed, weight, weight[0] * ("q_bias" in shape.block))
    apart = heads_apart(t, flat)
    t.drop(flat)
    if norm not in shape.block:
        return apart
    x = rms_norm(t, apart, "d", rows)
    t.drop(apart)
    return x


def _gpt2_block(t: Tape, shape: Shape, seq: int, device: str, x: Value) -> Value:
    residual_dropout = shape.dropout[2]
    t.part = "norms"
    normed = layer_norm(t, x)

    t.part = "attention"
    joint = linear(t, normed, "jh", "j")
    query, key, value = t.split(joint, "bsa", t.itemsize, 3)
    t.drop(joint)
    apart = query, key
    if shape.dropout[1] and device == "cpu":  # the fused kernel writes gradients in rows, products do not
        apart = [heads_apart(t, part) for part in (query, key)]
        t.drop(query, key)
    mixed = attend(t, shape, seq, device, *apart, value)
    projected = linear(t, mixed, "ha", "h")
    t.drop(mixed)
    out = dropout(t, projected, residual_dropout, device)
    t.drop(projected, *apart, value)
    t.part = "norms"
    middle = t.op("add", [out, x], gradients=SAME)
    t.drop(normed)
    normed = layer_norm(t, middle)
    t.part = "MLP"
    wide = linear(t, normed, "fh", "f")
    active = gelu(t, wide, shape.activation)
    t.drop(wide)
    narrow = linear(t, active, "hf", "h")
    t.drop(active)
    down = dropout(t, narrow, residual_dropout, device)
    t.drop(narrow)
    t.part = "block inputs"
    result = t.op("add", [middle, down], gradients=SAME)
    t.drop(middle, down, normed, out)
    return result
