"""What devices' kernels do that shapes do not tell."""

import pytest
import torch

from fsdp2_lab.predict.fake import CHUNK_CAT, fake_tensors
from fsdp2_lab.predict.kernels import Kernels
from fsdp2_lab.rank.allocator import AllocatorTrace, count_every_thread


def attention_strides(device: str) -> tuple[int, ...]:
    attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    with fake_tensors():
        query = torch.ones(2, 4, 16, 8)  # (batch, heads, seq, head_dim), contiguous
        result = Kernels(device).result(attend, (query,), {}, lambda: attend(query, query, query))
    return result[0].stride()


def test_attention_on_cuda_is_laid_out_by_sequence_and_needs_no_copy_to_join_heads():
    assert attention_strides("cpu") == (512, 128, 8, 1)
    assert attention_strides("cuda") == (512, 8, 32, 1)  # its transpose (batch, seq, heads, head_dim) is contiguous


def test_a_real_cpu_kernel_lays_attention_out_as_its_query():
    query = torch.ones(2, 4, 16, 8)
    assert torch.nn.functional.scaled_dot_product_attention(query, query, query).stride() == (512, 128, 8, 1)


def test_only_the_cuda_allocator_rounds():
    assert [Kernels("cpu").rounded(size) for size in (0, 1, 513)] == [0, 1, 513]
    assert [Kernels("cuda").rounded(size) for size in (0, 1, 513)] == [0, 512, 1024]


def test_optimizers_take_all_tensors_at_once_on_cuda_and_one_at_a_time_on_a_cpu():
    from torch.optim.optimizer import _default_to_fused_or_foreach

    parameters = [torch.nn.Parameter(torch.zeros(2))]
    for device, at_once in (("cpu", False), ("cuda", True)):
        with Kernels(device).supposed():
            assert _default_to_fused_or_foreach(parameters, False, False) == (False, at_once)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [[320], [3200, 100], [321, 99], [300, 30, 31], [7, 2]])
def test_what_a_cpu_makes_to_cut_gradients_into_chunks_is_what_it_is_measured_to_make(rows, dtype):
    tensors = [torch.zeros(n, 64, dtype=dtype) for n in rows]
    out = torch.empty(3, sum(-(-n // 3) for n in rows) * 64)
    count_every_thread(True)
    try:
        trace = AllocatorTrace()
        CHUNK_CAT(tensors, 0, 3, out=out)
        lap = trace.stop()
    finally:
        count_every_thread(False)
    kind, size_bytes = Kernels("cpu").private_bytes(CHUNK_CAT, (tensors, 0, 3), {"out": out})
    assert (kind, size_bytes) == ("reduce_scatter", lap.peak_bytes - lap.bytes_before)
    assert Kernels("cuda").private_bytes(CHUNK_CAT, (tensors, 0, 3), {"out": out}) == ()
