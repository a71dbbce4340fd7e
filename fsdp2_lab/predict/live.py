"""Live bytes of fake tensors: a dispatch mode that sees every storage come, change its size and go.

It counts what the script's own operations return, so a kernel's private buffers are not in it; those that matter
are in `kernels.py`.
"""

import re
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby

import torch
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .fake import in_backward, is_counted, span_name

# FSDP names what it does in spans for the profiler; the same names tell here what an allocation is for.
_SPAN_KINDS = {
    "FSDP::all_gather": "all_gather",
    "FSDP::all_gather_copy_out": "unsharded_parameters",
    "FSDP::post_backward_reduce": "reduce_scatter",
}
_SPAN = re.compile(r"(FSDP::\w+|Optimizer\.step#)(?:.*\((.+)\))?")
_PLACES = {"FSDP::pre_forward", "FSDP::post_forward", "FSDP::pre_backward", "FSDP::post_backward_reshard"}


@dataclass(slots=True)
class Block:
    """One storage's bytes from one event to another; `kind` is a term of the prediction."""

    size_bytes: int
    kind: str
    born: int
    died: int | None = None


@dataclass(slots=True)
class Moment:
    """The live bytes just after an allocation: in which phase, near which module's mark, by which operation."""

    event: int
    live_bytes: int
    phase: str
    mark: str
    module: str
    operation: str


@dataclass
class StepLog:
    """Every moment of one step, and every block that was alive in it."""

    moments: list[Moment] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)

    def terms_at(self, moment: Moment) -> dict[str, int]:
        """Bytes by kind at a moment."""
        terms = {}
        for block in self.blocks:
            if block.born <= moment.event and (block.died is None or block.died > moment.event):
                terms[block.kind] = terms.get(block.kind, 0) + block.size_bytes
        return terms

    def curve(self) -> list[dict]:
        """The highest live bytes from one mark of FSDP to the next, in the order of the step."""
        marks = groupby(self.moments, key=lambda moment: (moment.phase, moment.mark, moment.module))
        return [
            {"phase": phase, "mark": mark, "module": module, "live_bytes": max(m.live_bytes for m in moments)}
            for (phase, mark, module), moments in marks
        ]


class LiveBytes(TorchDispatchMode):
    """Counts the storages that `fake_mode` makes while it is entered; `step()` cuts the log into steps."""

    def __init__(self, fake_mode, kernels):
        super().__init__()
        self.live_bytes = 0
        self.vocabulary = None  # entries; tells logits from other activations
        self._fake_mode, self._kernels = fake_mode, kernels
        self._blocks = {}  # id of a storage: (its block, a weak reference that closes it)
        self._event = 0
        self._log = None
        self._phase, self._mark, self._module = "", "", ""
        self._spans = []

    def __enter__(self):
        self._resize, live = torch.UntypedStorage.resize_, self

        def resize_(storage, size_bytes):
            live._resize(storage, size_bytes)
            live._resized(storage)

        def get_rng_state():
            state = live._random_state()
            if live._kernels.on_host:
                live._add(state.untyped_storage(), "activations")
            return state

        # No dispatch mode sees these. FSDP frees parameters by the one, checkpointing keeps the other's results.
        torch.UntypedStorage.resize_ = resize_
        self._random_state, torch.get_rng_state = torch.get_rng_state, get_rng_state
        return super().__enter__()

    def __exit__(self, *error):
        torch.UntypedStorage.resize_, torch.get_rng_state = self._resize, self._random_state
        return super().__exit__(*error)

    def begin_step(self) -> None:
        self._log = StepLog(blocks=[block for block, _ in self._blocks.values()])
        self._phase, self._mark, self._module = "forward", "begin", ""
        self._note("begin")

    def end_step(self) -> StepLog:
        log, self._log = self._log, None
        return log

    def label(self, tensors, kind: str) -> None:
        """Say what storages are for, also for the moments before this one."""
        for tensor in tensors:
            local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
            if isinstance(local, torch.Tensor) and (found := self._blocks.get(id(local.untyped_storage()))):
                found[0].kind = kind

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented  # it runs the same on its local tensors, which come by here
        if span := span_name(func, args):
            self._begin_span(span)
        result = self._kernels.result(func, args, kwargs, lambda: func(*args, **kwargs or {}))
        if func.namespace == "profiler":
            if not span:
                self._end_span()
            return result
        before = self.live_bytes
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and is_counted(tensor, self._fake_mode):
                self._seen(tensor)
        extra = self._kernels.private_bytes(func, args, kwargs or {})
        if self._log and (extra or self.live_bytes > before):
            self._note(func.name(), *extra)
        return result

    def _seen(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if id(storage) not in self._blocks:
            self._add(storage, self._kind(tensor))

    def _add(self, storage, kind: str) -> None:
        key, size_bytes = id(storage), self._kernels.rounded(storage.nbytes())
        self._event += 1
        block = Block(size_bytes, kind, self._event)
        self._blocks[key] = block, weakref.ref(storage, lambda _: self._gone(key))
        self.live_bytes += size_bytes
        if self._log:
            self._log.blocks.append(block)

    def _gone(self, key: int) -> None:
        self._event += 1
        block, _ = self._blocks.pop(key)
        block.died = self._event
        self.live_bytes -= block.size_bytes

    def _resized(self, storage) -> None:
        if found := self._blocks.get(id(storage)):
            block, reference = found
            self._event += 1
            block.died = self._event
            grown = Block(self._kernels.rounded(storage.nbytes()), block.kind, self._event)
            self._blocks[id(storage)] = grown, reference
            self.live_bytes += grown.size_bytes - block.size_bytes
            if self._log:
                self._log.blocks.append(grown)
                self._note("resize")

    def _note(self, operation: str, kind: str = "", extra_bytes: int = 0) -> None:
        self._event += 1
        if extra_bytes:
            self._log.blocks.append(Block(extra_bytes, kind, self._event, self._event + 1))
        phase = self._where()
        self._log.moments.append(
            Moment(self._event, self.live_bytes + extra_bytes, phase, self._mark, self._module, operation)
        )
        self._event += 1

    def _where(self) -> str:
        if in_backward():
            self._phase = "backward"
        elif self._phase == "backward":
            self._phase, self._mark, self._module = "after backward", "", ""
        return self._phase

    def _kind(self, tensor: torch.Tensor) -> str:
        for span in reversed(self._spans):
            if span in _SPAN_KINDS:
                return _SPAN_KINDS[span]
        if self._log is None:
            return "other"
        if self.vocabulary and tensor.dim() > 1 and tensor.shape[-1] == self.vocabulary:
            return "logits"
        phase = self._where()
        # Checkpointing runs a forward inside backward, with gradients enabled.
        return "activations" if phase in ("forward", "loss") or torch.is_grad_enabled() else "temporaries"

    def _begin_span(self, name: str) -> None:
        kind, module = "", ""
        if match := _SPAN.match(name):
            kind, module = match[1], match[2] or ""
        self._spans.append(kind)
        if kind == "Optimizer.step#":
            self._phase, self._mark, self._module = "optimizer", "", ""
        elif kind in _PLACES:
            self._where()
            self._mark, self._module = kind.removeprefix("FSDP::"), module

    def _end_span(self) -> None:
        kind = self._spans.pop() if self._spans else ""
        if kind == "Optimizer.step#":
            self._phase = "after the optimizer"
        elif kind == "FSDP::post_forward" and not self._module and not in_backward():
            self._phase = "loss"


@contextmanager
def labelled(live: LiveBytes):
    """Have every optimizer's step tell `live` what parameters, gradients and states are."""

    def before(optimizer, _args, _options):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        live.label(parameters, "sharded_parameters")
        live.label([parameter.grad for parameter in parameters], "sharded_gradients")

    def after(optimizer, _args, _options):
        live.label([value for states in optimizer.state.values() for value in states.values()], "optimizer")

    hooks = [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
