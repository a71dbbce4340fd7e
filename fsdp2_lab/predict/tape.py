"""A tape of tensor operations: runs a forward and its backward as autograd does, with sizes instead of numbers.

What it keeps to: an operation's saved tensors live until its backward is done; operations go backward in the
reverse of the order in which they were made; a gradient that arrives second is added into the first one's memory,
or into new memory where others hold the first or it is a view.
"""

from dataclasses import dataclass
from math import prod

from .ledger import Ledger, Storage

NEW, VIEW, SAME, NONE = "new", "view", "same", "none"  # how an input's gradient is made from the output's


class Sizes:
    """A job's lengths by symbol; a product of symbols is a number of elements: `bsh` is batch × seq × hidden."""

    def __init__(self, **lengths: int):
        self._lengths = lengths

    def bytes(self, symbols: str, itemsize: float) -> int:
        return int(itemsize * prod(self._lengths[symbol] for symbol in symbols))


class Value:
    """A tensor of a forward: its storage, its size in symbols and its bytes per element."""

    __slots__ = ("gradient", "gradient_is_view", "itemsize", "storage", "symbols")

    def __init__(self, storage: Storage, symbols: str, itemsize: float):
        self.storage, self.symbols, self.itemsize = storage, symbols, itemsize
        self.gradient: Storage | None = None
        self.gradient_is_view = False


@dataclass
class _Node:
    name: str
    outputs: list[Value]
    inputs: list[tuple[Value, str]]
    saved: list[Storage]
    scratch: list[tuple[str, float]]
    weights: list[str]


class Tape:
    """Records operations on a ledger.

    `saving` says whether tensors are kept for backward. A recomputed forward ends as soon as it has made
    `stop_after` saves: what follows needs no computing again.
    """

    def __init__(self, ledger: Ledger, sizes: Sizes, itemsize: int, saving: bool = True, stop_after: int | None = None):
        self.ledger, self.sizes, self.itemsize, self.saving = ledger, sizes, itemsize, saving
        self.part = ""
        self.saves = 0
        self.weight_gradients: list[Storage] = []
        self._stop_after = stop_after
        self._nodes: list[_Node] = []

    def op(
        self,
        name: str,
        inputs: list[Value],
        symbols: str = "",
        itemsize: float = 0,
        *,
        gradients: str | tuple[str, ...] = NEW,
        saves: list[Value] = (),
        saves_output: bool = False,
        saves_more: list[tuple[str, float]] = (),
        is_view: bool = False,
        forward_scratch: list[tuple[str, float]] = (),
        scratch: list[tuple[str, float]] = (),
        weights: list[str] = (),
    ) -> Value:
        """One operation; sizes not given are the first input's.

        `gradients`: how each input gets its own. `saves_more`: tensors that exist only for backward. `scratch`:
        what backward (or forward) holds at its peak and then frees. `weights`: the weights' sizes, for their gradients.
        """
        self.ledger.doing = f"{name} in {self.part}"
        symbols, itemsize = symbols or inputs[0].symbols, itemsize or inputs[0].itemsize
        saved = [self._save(value.storage) for value in saves]
        if is_view:
            output = Value(self.ledger.share(inputs[0].storage), symbols, itemsize)
        else:
            output = Value(self._alloc(symbols, itemsize), symbols, itemsize)
        more = [self._alloc(*size) for size in saves_more]
        passing = [self._alloc(*size) for size in forward_scratch]
        if saves_output:
            saved.append(self._save(output.storage))
        saved += [self._save(storage) for storage in more]
        for storage in more + passing:
            self.ledger.release(storage)
        kinds = (gradients,) * len(inputs) if isinstance(gradients, str) else gradients
        self._nodes.append(
            _Node(f"{name} in {self.part}", [output], list(zip(inputs, kinds, strict=True)), saved, scratch, weights)
        )
        return output

    def split(self, x: Value, symbols: str, itemsize: float, parts: int) -> list[Value]:
        """Equal views of x; their gradients are joined into new memory."""
        outputs = [Value(self.ledger.share(x.storage), symbols, itemsize) for _ in range(parts)]
        self._nodes.append(_Node(f"split in {self.part}", outputs, [(x, NEW)], [], [], []))
        return outputs

    def drop(self, *values: Value) -> None:
        """The Python code has no more use for these."""
        for value in values:
            self.ledger.release(value.storage)

    def backward(self) -> None:
        """Go backward from the values that have a gradient; what came from outside is left with its own."""
        for node in reversed(self._nodes):
            if any(output.gradient is not None for output in node.outputs):
                self._backward(node)
        self._nodes = []

    def _backward(self, node: _Node) -> None:
        ledger, output = self.ledger, node.outputs[0]
        ledger.doing = f"backward of {node.name}"
        scratch = [self.temporary(*size) for size in node.scratch]
        self.weight_gradients += [self.weight_gradient(symbols) for symbols in node.weights]
        arriving = []
        for value, kind in node.inputs:
            if kind in (NEW, VIEW):
                arriving.append((value, self.temporary(value.symbols, value.itemsize), kind == VIEW))
            elif kind == SAME:
                arriving.append((value, ledger.share(output.gradient), output.gradient_is_view))
        for storage in node.saved:
            ledger.release(storage)
        for arrival in arriving:
            self._accumulate(*arrival)
        for output in node.outputs:
            ledger.release(output.gradient)
            output.gradient = None
        for storage in scratch:
            ledger.release(storage)

    def _accumulate(self, value: Value, gradient: Storage, is_view: bool) -> None:
        first = value.gradient
        if first is None:
            value.gradient, value.gradient_is_view = gradient, is_view
            return
        if first.owners > 1 or value.gradient_is_view:
            value.gradient, value.gradient_is_view = self.temporary(value.symbols, value.itemsize), False
            self.ledger.release(first)
        self.ledger.release(gradient)

    def _save(self, storage: Storage) -> Storage | None:
        self.saves += 1
        return self.ledger.share(storage) if self.saving else None

    @property
    def _stopped(self) -> bool:
        return self._stop_after is not None and self.saves >= self._stop_after

    def _alloc(self, symbols: str, itemsize: float) -> Storage:
        size_bytes = 0 if self._stopped else self.sizes.bytes(symbols, itemsize)
        return self.ledger.alloc("activations", self.part, f"{itemsize:g}{symbols}", size_bytes)

    def temporary(self, symbols: str, itemsize: float) -> Storage:
        """Memory for the gradient of an activation."""
        size_bytes = self.sizes.bytes(symbols, itemsize)
        return self.ledger.alloc("temporaries", "gradients of activations", f"{itemsize:g}{symbols}", size_bytes)

    def weight_gradient(self, symbols: str) -> Storage:
        """Memory for the gradient of a whole weight, until it is reduced."""
        size_bytes = self.sizes.bytes(symbols, self.itemsize)
        return self.ledger.alloc("temporaries", "gradients of whole weights", f"{self.itemsize}{symbols}", size_bytes)
