"""The operations inside a block, each with what it saves for backward and what it makes on the way."""

from .tape import NEW, NONE, SAME, VIEW, Tape, Value


def linear(t: Tape, x: Value, weight: str, bias: str = "") -> Value:
    """`x @ weight.T + bias`, of a weight of (out, in); saves x.

    The gradient of x comes as a view, since the product is of two dimensions.
    """
    weights = [weight, bias] if bias else [weight]
    return t.op("linear", [x], f"bs{weight[0]}", t.itemsize, gradients=VIEW, saves=[x], weights=weights)


def rms_norm(t: Tape, x: Value, weight: str = "h", rows: str = "bs") -> Value:
    """RMSNorm as transformers writes it: in float32, one operation after another."""
    wide = (x.symbols, 4)
    x32 = x if t.itemsize == 4 else t.op("cast to float32", [x], itemsize=4)
    square = t.op("square", [x32], saves=[x32], scratch=[wide, wide])
    mean = t.op("mean", [square], rows, 4)
    t.drop(square)
    rsqrt = t.op("rsqrt", [mean], saves_output=True, scratch=[(rows, 4), (rows, 4)])
    normed = t.op("normalize", [x32, rsqrt], saves=[x32, rsqrt], scratch=[wide])
    t.drop(rsqrt)
    narrow = normed
    if t.itemsize < 4:
        t.drop(x32)
        narrow = t.op("cast to compute dtype", [normed], itemsize=t.itemsize)
    scaled = t.op("scale", [narrow], saves=[narrow], scratch=[(x.symbols, t.itemsize)], weights=[weight])
    if t.itemsize < 4:
        t.drop(narrow)
    t.drop(normed, mean)
    return scaled


def layer_norm(t: Tape, x: Value) -> Value:
    """LayerNorm, one fused operation."""
    return t.op("norm", [x], saves=[x], saves_more=[("bs", 4), ("bs", 4)], weights=["h", "h"])


def rotate(t: Tape, x: Value) -> Value:
    """Rotary positions: x·cos + rotate_half(x)·sin; cos and sin are the model's, so x is not saved."""
    half = x.itemsize / 2
    by_cos = t.op("x·cos", [x])
    first = t.op("first half", [x], itemsize=half, is_view=True)
    second = t.op("second half", [x], itemsize=half, is_view=True)
    negative = t.op("negate", [second])
    turned = t.op("cat", [negative, first], itemsize=x.itemsize, gradients=SAME)
    t.drop(first, second, negative)
    by_sin = t.op("turned·sin", [turned])
    t.drop(turned)
    rotated = t.op("add", [by_cos, by_sin], gradients=SAME)
    t.drop(by_cos, by_sin)
    return rotated


def heads_apart(t: Tape, x: Value) -> Value:
    """Heads moved before the sequence: a view; its gradient is copied back into rows."""
    return t.op("transpose", [x], is_view=True)


def dropout(t: Tape, x: Value, probability: float, device: str) -> Value:
    """Dropout; on CUDA it keeps a mask of one byte per element, on a CPU one of x's own dtype."""
    if not probability:
        return t.op("no dropout", [x], is_view=True, gradients=SAME)
    noise = t.op("noise", [x], itemsize=1 if device == "cuda" else x.itemsize, gradients=NONE)
    dropped = t.op("dropout", [x, noise], itemsize=x.itemsize, saves=[noise], gradients=(NEW, NONE))
    t.drop(noise)
    return dropped


def gelu(t: Tape, x: Value, kind: str) -> Value:
    """GELU; `gelu_new` is written out in Python, and every intermediate is a tensor."""
    if kind != "gelu_new":
        return t.op("gelu", [x], saves=[x])
    half = t.op("half", [x])
    cube = t.op("cube", [x], saves=[x], scratch=[(x.symbols, x.itemsize)] * 2)
    small = t.op("times 0.044715", [cube])
    t.drop(cube)
    inner = t.op("add", [x, small], gradients=SAME)
    t.drop(small)
    scaled = t.op("times √(2/π)", [inner])
    t.drop(inner)
    tanh = t.op("tanh", [scaled], saves_output=True)
    t.drop(scaled)
    above = t.op("1 + tanh", [tanh], gradients=SAME)
    t.drop(tanh)
    product = t.op("product", [half, above], saves=[half, above])
    t.drop(half, above)
    return product
