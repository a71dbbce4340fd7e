"""Which storages an optimizer knows as parameters, gradients and states, so that their bytes can be told apart."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


class Owners:
    """Storages that the optimizer knows: address to kind and bytes, as it saw them at its latest step."""

    def __init__(self):
        self.before: dict[int, tuple[str, int]] = {}  # alive when its step began
        self.after: dict[int, tuple[str, int]] = {}  # and when it ended

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note what every optimizer holds, at each of its steps."""
        hooks = [register_optimizer_step_pre_hook(self._begins), register_optimizer_step_post_hook(self._ends)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _begins(self, optimizer, _args, _options) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self.before |= _addresses(parameters, "sharded_parameters")
        self.before |= _addresses([parameter.grad for parameter in parameters], "sharded_gradients")

    def _ends(self, optimizer, _args, _options) -> None:
        self.after |= _addresses([value for state in optimizer.state.values() for value in state.values()], "optimizer")


@torch.no_grad()
def _addresses(tensors: list, kind: str) -> dict[int, tuple[str, int]]:
    found = {}
    for tensor in tensors:
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        if not isinstance(local, torch.Tensor):
            continue
        with suppress(NotImplementedError, RuntimeError):  # sparse gradients and wrappers have no storage of their own
            storage = local.untyped_storage()
            if storage.nbytes():
                found[storage.data_ptr()] = (kind, storage.nbytes())
    return found
