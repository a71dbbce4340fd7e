"""Private names that dry runs build on, each in `predict/fake.py` alone: these tests say when they change."""

import inspect
from pathlib import Path

from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.fsdp._fully_shard import _fsdp_param, _fsdp_param_group
from torch.distributed.tensor import _sharding_prop, _utils
from torch.optim import optimizer
from torch.utils import _foreach_utils, checkpoint
from transformers import masking_utils

from fsdp2_lab.predict import fake, live


def test_dtensor_asks_for_a_fake_mode_where_we_answer():
    assert "detect_fake_mode() or" in inspect.getsource(_sharding_prop.ShardingPropagator)
    assert "_compute_local_shape_and_global_offset(" in inspect.getsource(_utils.compute_local_shape_and_global_offset)


def test_fsdp_cuts_parameters_and_names_its_spans_as_we_read_them():
    assert list(inspect.signature(_fsdp_param._chunk_with_empty).parameters) == ["tensor", "num_chunks", "dim"]
    source = inspect.getsource(_fsdp_param_group)
    for span in {*live._SPAN_KINDS, *live._PLACES}:
        assert f'"{span}"' in source, span


def test_transformers_reads_positions_where_we_answer():
    assert "find_packed_sequence_indices(position_ids)" in inspect.getsource(masking_utils._preprocess_mask_arguments)


def test_devices_for_foreach_and_random_state_are_asked_for_by_name():
    for module in (_foreach_utils, optimizer):
        assert callable(module._get_foreach_kernels_supported_devices)
    assert "torch.get_rng_state()" in inspect.getsource(checkpoint)


def test_a_fake_mode_is_told_from_another():
    import torch

    with FakeTensorMode() as ours:
        tensor = torch.empty(2)
    with FakeTensorMode() as other:
        pass
    assert fake.is_counted(tensor, ours) and not fake.is_counted(tensor, other)
    assert not fake.in_backward()


def test_private_names_stay_in_one_file():
    for file in Path(fake.__file__).parent.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        if file.name != "fake.py":
            assert "torch._" not in text and "import _" not in text, file.name
