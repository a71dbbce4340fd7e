"""Scaled dot-product attention: which kernel runs, what it saves, and what it makes on the way."""

from .shapes import Shape
from .tape import NEW, NONE, SAME, Tape, Value


def attend(t: Tape, shape: Shape, seq: int, device: str, query: Value, key: Value, value: Value) -> Value:
    """Attention's output of (batch, seq, heads × head_dim) from query, key and value, heads apart."""
    if shape.window and seq >= shape.window:
        return _masked(t, shape, device, query, key, value)
    if shape.dropout[1] and device == "cpu":
        return _by_products(t, query, key, value)
    return _flash(t, shape, device, query, key, value)


def _flash(t: Tape, shape: Shape, device: str, query: Value, key: Value, value: Value) -> Value:
    scratch = []
    if device == "cuda":  # a float32 sum of the query's gradient, and one key and value gradient per query head
        scratch = [("bsa", 4), ("bns", 4)]
        scratch += [("bsa", t.itemsize)] * 2 * (shape.kv_heads < shape.heads)
    inputs = [query, key, value]
    return t.op("attention", inputs, "bsa", saves=inputs, saves_output=True, saves_more=[("bns", 4)], scratch=scratch)


def _masked(t: Tape, shape: Shape, device: str, query: Value, key: Value, value: Value) -> Value:
    # With a mask, transformers repeats key and value heads, and the mask is turned into numbers.
    if shape.kv_heads < shape.heads:
        key, value = (t.op("repeat heads", [x], "bsa") for x in (key, value))
    inputs = [query, key, value]
    output = t.op(
        "attention", inputs, "bsa", saves=inputs, saves_output=True, saves_more=[("bns", 4), ("bss", t.itemsize)]
    )
    if shape.kv_heads < shape.heads:
        t.drop(key, value)
    return output


def _by_products(t: Tape, query: Value, key: Value, value: Value) -> Value:
    """On a CPU, attention with dropout has no fused kernel: it makes scores of seq × seq per head, in float32."""
    narrow = t.itemsize < 4
    is_view = t.sizes.bytes("b", 1) == 1  # heads of one sequence already lie as a batch of products wants them
    if narrow:
        query, key, value = wide = [t.op("cast to float32", [x], itemsize=4) for x in (query, key, value)]
    q_scaled = t.op("scale query", [query])
    mask = t.op("mask", [query], "ss", gradients=NONE)
    k_scaled = t.op("scale key", [key])
    q_rows = t.op("copy query", [q_scaled], gradients=SAME, is_view=is_view)
    k_rows = t.op("copy key", [k_scaled], gradients=SAME, is_view=is_view)
    scores = t.op("scores", [q_rows, k_rows], "bnss", saves=[q_rows, k_rows])
    t.drop(k_scaled, q_rows, k_rows)
    weights = t.op("softmax", [scores], saves_output=True, forward_scratch=[("bnss", 1)])
    t.drop(scores)
    noise = t.op("noise", [weights], gradients=NONE)
    dropped = t.op("dropout", [weights, noise], saves=[noise], gradients=(NEW, NONE))
    returned = t.op("cast weights", [weights], itemsize=t.itemsize, gradients=NONE, is_view=not narrow)
    v_rows = t.op("copy value", [value], gradients=SAME, is_view=is_view)
    mixed = t.op("mix values", [dropped, v_rows], "bsa", saves=[dropped, v_rows])
    if narrow:
        mixed_wide, mixed = mixed, t.op("cast to compute dtype", [mixed], itemsize=t.itemsize)
        t.drop(mixed_wide, *wide)
    t.drop(q_scaled, weights, noise, dropped, v_rows, mask, returned)
    output = t.op("rows", [mixed])
    t.drop(mixed)
    return output
