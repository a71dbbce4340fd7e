"""What a device's kernels do with memory that the shapes of their results do not tell."""

from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
from torch.nn import functional

from .fake import CHUNK_CAT, foreach_on_cpu

_c10d, _aten = torch.ops.c10d, torch.ops.aten
_attend = functional.scaled_dot_product_attention


class Kernels:
    """The kernels of `cpu` or `cuda`, where they differ from what fake CPU tensors show."""

    def __init__(self, device: str):
        self._cuda = device == "cuda"
        self.on_host = not self._cuda  # what lives in the host's memory counts

    @contextmanager
    def supposed(self):
        """Optimizers, clipping and attention choose by the device how they work."""
        with ExitStack() as stack:
            if self._cuda:
                stack.enter_context(foreach_on_cpu())
                stack.enter_context(patch.object(functional, "scaled_dot_product_attention", _fused_with_dropout))
            yield

    def rounded(self, size_bytes: int) -> int:
        """What the allocator counts for a request."""
        return -(-size_bytes // 512) * 512 if self._cuda else size_bytes

    def result(self, func, args, kwargs, call):
        """The result of an operation, laid out as this device's kernel does."""
        result = call()
        if self._cuda and func is _aten._scaled_dot_product_flash_attention_for_cpu.default:
            query = args[0]  # (batch, heads, seq, head_dim); on CUDA the result lies as (batch, seq, heads, head_dim)
            attention = torch.empty_permuted(query.shape, (0, 2, 1, 3), dtype=query.dtype, device=query.device)
            return attention, *result[1:]
        return result

    def private_bytes(self, func, args, options) -> tuple[str, int] | tuple[()]:
        """The term and the bytes of buffers that an operation makes and frees again, or nothing."""
        if not self._cuda and func is _c10d._reduce_scatter_base_.default:
            return "reduce_scatter", args[1].untyped_storage().nbytes()  # gloo sums into a copy of the input
        if not self._cuda and func is _c10d._allgather_base_.default:
            return "all_gather", args[0].untyped_storage().nbytes()  # gloo gathers into a copy of the output
        if not self._cuda and func is CHUNK_CAT:
            return "reduce_scatter", _padding_bytes(*args[:3], options["out"])
        return ()


def _fused_with_dropout(query, key, value, attn_mask=None, dropout_p=0.0, **options):
    # CUDA's fused kernels draw dropout as they go and keep a seed; a CPU's has none and would make the scores.
    return _attend(query, key, value, attn_mask, 0.0, **options)


def _padding_bytes(tensors: list[torch.Tensor], dim: int, chunks: int, out: torch.Tensor) -> int:
    """What a CPU makes to cut tensors into chunks: copies of those that do not divide, and a cast of one at a time."""
    padded = [t.nbytes // t.size(dim) * (-(-t.size(dim) // chunks) * chunks) for t in tensors]
    uneven = sum(size for size, t in zip(padded, tensors, strict=True) if t.size(dim) % chunks)
    return uneven + (max(padded) if tensors[0].dtype != out.dtype else 0)
