"""Forward and backward of one training step of launch/train.py, on a ledger, moment by moment."""

from .blocks import block_forward, final_norm
from .layers import dropout
from .ledger import Ledger, Segment, Storage
from .shapes import Shape
from .sharding import InRoot, Job, Sharded, groups, whole
from .tape import NEW, NONE, SAME, Sizes, Tape, Value


def lengths(shape: Shape, job: Job) -> Sizes:
    """The symbols of every formula, as numbers."""
    return Sizes(
        b=job.batch,
        s=job.seq,
        h=shape.hidden,
        f=shape.mlp,
        a=shape.heads * shape.head_dim,
        g=shape.kv_heads * shape.head_dim,
        n=shape.heads,
        k=shape.kv_heads,
        d=shape.head_dim,
        v=shape.vocab,
        j=3 * shape.hidden,
        p=shape.positions or 0,
    )


class Step:
    """A step's segments; `is_first` is step 0, before there are earlier logits to free.

    `checkpointed` says of each block to walk through whether it is; by `walk.py` they may stand for many more.
    """

    def __init__(self, shape: Shape, job: Job, is_first: bool, checkpointed: list[bool]):
        self.shape, self.job, self.is_first, self.checkpointed = shape, job, is_first, checkpointed
        self.ledger, self.sizes = Ledger(), lengths(shape, job)
        block, root = groups(shape, job.ranks)
        is_whole = job.granularity == "model"
        self.root = Sharded(self.ledger, job, whole(shape, job.ranks) if is_whole else root)
        self.blocks = [InRoot() if is_whole else Sharded(self.ledger, job, block) for _ in checkpointed]
        self._kept_gradients: list[list[Storage]] = []  # of blocks that are reduced with the root
        self._gather_buffer: Storage | None = None  # kept until the next gather of the forward
        self._reduce_buffer: Storage | None = None  # kept until the next reduction
        self._tapes: list[Tape] = []  # of the blocks
        self._inputs: list[Value] = []  # of the blocks
        self._random_states: list[Storage] = []

    def walk(self) -> list[Segment]:
        """Go through the step up to the optimizer; one segment a moment."""
        self._embed()
        x = self._first
        for index in range(len(self.blocks)):
            x = self._block_forward(index, x)
        self._head(x)
        self._loss()
        self._head_backward()
        for index in reversed(range(len(self.blocks))):
            x = self._block_backward(index, x)
        self._embedding_backward()
        return self.ledger.segments

    def _tape(self, **options) -> Tape:
        return Tape(self.ledger, self.sizes, self.job.compute_bytes, **options)

    def _gather_in_forward(self, group: Sharded | InRoot) -> None:
        if isinstance(group, InRoot):
            return
        group.all_gather()
        self.ledger.release(self._gather_buffer)
        self._gather_buffer = group.copy_out()

    def _embed(self) -> None:
        self._gather_in_forward(self.root)
        t, c, shape = self._tape(), self.job.compute_bytes, self.shape
        t.part = "block inputs"
        tokens = Value(self.ledger.alloc("other", "tokens", "8bs", 0), "bs", 8)
        embedded = t.op("embed", [tokens], "bsh", c, gradients=NONE, weights=["vh"])
        if shape.family == "gpt2":
            places = t.op("embed positions", [tokens], "sh", c, gradients=NONE, weights=["ph"])
            total = t.op("add", [embedded, places], gradients=(SAME, NEW))
            self._first = dropout(t, total, shape.dropout[0], self.job.device)
            t.drop(total)
            self._held, self._angles = [embedded, places], []
        else:
            self._first = embedded
            self._held = [Value(self.ledger.share(embedded.storage), "bsh", c)]
            t.part = "rotary angles"
            self._angles = [t.op("angles", [tokens], "sd", c, gradients=NONE) for _ in range(2)]
        self._embedding = t
        self.ledger.close("forward of the embedding")

    def _block_forward(self, index: int, x: Value) -> Value:
        job, block = self.job, self.blocks[index]
        self._gather_in_forward(block)
        tape = self._tape(saving=not self.checkpointed[index])
        output = block_forward(tape, self.shape, job.seq, job.device, x)
        if self.checkpointed[index]:  # the block's input stays for recomputing
            self._random_states.append(self._random_state())
        else:
            tape.drop(x)
        if job.reshard:
            block.reshard()
        self._tapes.append(tape)
        self._inputs.append(x)
        self.ledger.close(f"forward of block {index}")
        return output

    def _head(self, x: Value) -> None:
        t = self._tape()
        self._normed = final_norm(t, self.shape, x)
        t.drop(x)
        t.drop(*self._held)  # the body has returned when its head begins
        logits = self._logits("logits", self.job.compute_bytes)
        if self.job.reshard:
            self.root.reshard()
        self.ledger.release(self._gather_buffer)
        if not self.is_first:  # those of the step before, whose name the new ones take
            self.ledger.release(Storage(logits.label, logits.size_bytes))
        self._head_tape = t
        self.ledger.close("forward of lm_head")

    def _logits(self, part: str, width: int) -> Storage:
        self.ledger.doing = part
        return self.ledger.alloc("logits", part, f"{width}bsv", self.sizes.bytes("bsv", width))

    def _loss(self) -> None:
        release, width = self.ledger.release, self.job.compute_bytes
        wide = self._logits("logits.float()", 4) if width < 4 else None
        log_probabilities = self._logits("log-softmax", 4)
        release(wide)
        picked = self._logits("gradient of the log-softmax", 4)
        self._gradient = self._logits("gradient of the logits", 4)
        release(log_probabilities)
        release(picked)
        if width < 4:
            wide, self._gradient = self._gradient, self._logits("gradient of the logits", width)
            release(wide)
        self.ledger.close("the loss and its gradient")

    def _gather_in_backward(self, group: Sharded | InRoot, below: Sharded | InRoot | None) -> None:
        if isinstance(group, Sharded):
            group.all_gather()
            self.ledger.release(group.copy_out())
        if below:
            below.all_gather()

    def _head_backward(self) -> None:
        self._gather_in_backward(self.root, self.blocks[-1])
        t, normed = self._head_tape, self._normed
        self.ledger.doing = "backward of lm_head"
        self._head_gradient = t.weight_gradient("vh")
        normed.gradient = t.temporary("bsh", self.job.compute_bytes)
        t.drop(normed)
        self.ledger.release(self._gradient)
        t.backward()
        self.ledger.close("backward of lm_head")

    def _block_backward(self, index: int, output: Value) -> Value:
        job, tape, x = self.job, self._tapes[index], self._inputs[index]
        self._gather_in_backward(self.blocks[index], self.blocks[index - 1] if index else None)
        if self.checkpointed[index]:
            tape = self._tape(stop_after=tape.saves)
            again = block_forward(tape, self.shape, job.seq, job.device, x)
            tape.drop(again)
            again.gradient = output.gradient
        tape.backward()
        if self.checkpointed[index]:
            tape.drop(x)
            self.ledger.release(self._random_states.pop())
        self._reduce(self.blocks[index], tape.weight_gradients)
        self.ledger.close(f"backward of block {index}")
        return x

    def _random_state(self) -> Storage:
        # Checkpointing keeps it for dropout; a CPU's generator has this many bytes, and always stays on the CPU.
        size_bytes = 5056 if self.job.device == "cpu" else 0
        return self.ledger.alloc("activations", "random states", "5056", size_bytes)

    def _reduce(self, group: Sharded | InRoot, gradients: list[Storage]) -> None:
        if isinstance(group, InRoot):
            self._kept_gradients.append(gradients)
            return
        group.reshard()
        self.ledger.release(self._reduce_buffer)
        self._reduce_buffer = group.reduce_scatter(gradients)

    def _embedding_backward(self) -> None:
        t = self._embedding
        t.drop(*self._angles)
        t.backward()
        gradients = [*self._gradients_of_blocks(), *self._head_tape.weight_gradients]
        if self.shape.tied:  # the head's gradient came as a view, so the sum of both is a third
            *others, table = t.weight_gradients
            total = t.weight_gradient("vh")
            self.ledger.release(table)
            self.ledger.release(self._head_gradient)
            gradients = [total, *others, *gradients]
        else:
            gradients = [*gradients, *t.weight_gradients, self._head_gradient]
        self._reduce(self.root, gradients)
        self.ledger.release(self._reduce_buffer)
        self.ledger.close("backward of the embedding")

    def _gradients_of_blocks(self) -> list[Storage]:
        """Gradients that wait for the root's reduction, also those of the blocks that a middle one stands for."""
        walked = self._kept_gradients
        unwalked = (self.shape.layers - len(self.blocks)) * walked[1:2]
        alike = [Storage(gradient.label, gradient.size_bytes) for block in unwalked for gradient in block]
        return [*alike, *(gradient for block in walked for gradient in block)]
