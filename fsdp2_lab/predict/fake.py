"""A world of fake tensors and fake ranks. The one file on torch's private names for them."""

import os
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.distributed import device_mesh
from torch.distributed.fsdp._fully_shard import _fsdp_init, _fsdp_param
from torch.distributed.tensor import _sharding_prop, _utils
from torch.optim import optimizer
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils import _foreach_utils

# These compute with the numbers of ranks, of rows and of bytes in a pickle, and read what comes out.
_READERS = (
    (dist, "init_device_mesh"),
    (device_mesh, "init_device_mesh"),
    (_fsdp_init, "init_device_mesh"),
    (device_mesh.DeviceMesh, "__getitem__"),
    (dist, "broadcast_object_list"),
    (_utils, "_compute_local_shape_and_global_offset"),
)
NO_VALUES = (DataDependentOutputException, DynamicOutputShapeException)
CHUNK_CAT = torch.ops.fsdp.chunk_cat.default  # FSDP's copy-in of whole gradients for a reduce-scatter
_BEGIN_SPAN = torch.ops.profiler._record_function_enter_new.default


@contextmanager
def fake_ranks(world_size: int):
    """This process is rank 0 of `world_size`; a process group that the script asks for is a fake one."""
    initialize = dist.init_process_group

    def init_process_group(*_args, **_options):
        initialize("fake", store=FakeStore(), rank=0, world_size=world_size)

    names = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size)}
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, names))
        for module in (dist, dist.distributed_c10d):
            stack.enter_context(patch.object(module, "init_process_group", init_process_group))
        try:
            yield
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


@contextmanager
def fake_tensors():
    """Tensors without memory; yields their `FakeTensorMode`."""
    # DTensor works out global shapes with tensors of their own size. In a mode of theirs they are told apart.
    shadows = FakeTensorMode()
    with ExitStack() as stack:
        stack.enter_context(patch.object(_sharding_prop, "detect_fake_mode", lambda *_: shadows))
        stack.enter_context(patch.object(_fsdp_param, "_chunk_with_empty", _own_chunk))
        stack.enter_context(patch.object(torch.utils, "swap_tensors", _swap_or_set(torch.utils.swap_tensors)))
        stack.enter_context(_whole_sequences())
        for module, name in _READERS:
            stack.enter_context(patch.object(module, name, _with_real_tensors(getattr(module, name))))
        yield stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))


def _own_chunk(tensor: torch.Tensor, count: int, dim: int) -> list[torch.Tensor]:
    # FSDP cuts a parameter for every rank and keeps its own part: of a thousand ranks' parts, rank 0 needs the first.
    return [tensor.narrow(dim, 0, -(-tensor.size(dim) // count))] * count


def _swap_or_set(swap):
    def swap_tensors(parameter, converted):
        if isinstance(parameter, FakeTensor) and parameter.device == converted.device:
            parameter.data = converted.detach()  # as module.to does with real tensors; a swap allows no weak reference
        else:
            swap(parameter, converted)

    return swap_tensors


def _whole_sequences():
    """Have transformers mask a batch as it does when positions show that each row is one sequence.

    Where it cannot read positions it supposes several, and makes masks that no real run has.
    """
    from transformers import masking_utils

    find = masking_utils.find_packed_sequence_indices

    def find_packed_sequence_indices(position_ids):
        find(position_ids)

    return patch.object(masking_utils, "find_packed_sequence_indices", find_packed_sequence_indices)


def _with_real_tensors(function):
    def wrapped(*args, **options):
        with unset_fake_temporarily():
            return function(*args, **options)

    return wrapped


def is_counted(tensor: torch.Tensor, mode: FakeTensorMode) -> bool:
    """Whether a tensor would have memory of its own in a real run."""
    return isinstance(tensor, FakeTensor) and tensor.fake_mode is mode and tensor.device.type != "meta"


def in_backward() -> bool:
    """Whether autograd is running a graph."""
    return torch._C._current_graph_task_id() != -1


def span_name(func, args) -> str | None:
    """The name of the profiler span that an operation begins."""
    return args[0] if func is _BEGIN_SPAN else None


@contextmanager
def foreach_on_cpu():
    """Optimizers and clipping take a CPU's tensors all at once, as they do a GPU's."""
    names = _foreach_utils._get_foreach_kernels_supported_devices
    with ExitStack() as stack:
        for module in (_foreach_utils, optimizer):
            stack.enter_context(
                patch.object(module, "_get_foreach_kernels_supported_devices", lambda: [*names(), "cpu"])
            )
        yield
