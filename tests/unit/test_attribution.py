"""A step's bytes are told apart by the operation that made them, also where a thread frees them unseen."""

import pytest
import torch

from fsdp2_lab.contract.terms import TERMS, in_order
from fsdp2_lab.rank.allocator import Event, Lap, Operation
from fsdp2_lab.rank.attribution import POINTS, Attribution
from fsdp2_lab.rank.owners import Owners

ROOT_FORWARD = Operation("FSDP::pre_forward", None)
BLOCK_FORWARD = Operation("FSDP::pre_forward (model.layers.0)", None)
BLOCK_ENDS = Operation("FSDP::post_forward (model.layers.0)", None)
ROOT_ENDS = Operation("FSDP::post_forward", None)
GATHER = Operation("c10d::_allgather_base_", Operation("FSDP::all_gather (model.layers.0)", BLOCK_FORWARD))
COPY_OUT = Operation("FSDP::all_gather_copy_out (model.layers.0)", BLOCK_FORWARD)
LINEAR = Operation("aten::mm", Operation("aten::linear", None, is_recorded=True))
LOG_SOFTMAX = Operation("aten::_log_softmax", None, is_recorded=True)
NODE = Operation("MmBackward0", None, is_backward=True)
AGAIN = Operation("aten::mm", NODE, is_recorded=True)  # what checkpointing computes again
REDUCE = Operation("FSDP::post_backward_reduce (model.layers.0)", NODE)
CLIP = Operation("aten::linalg_vector_norm", None)
OPTIMIZER = Operation("Optimizer.step#AdamW.step", None)
SQRT = Operation("aten::sqrt", OPTIMIZER)


class Script:
    """Events of a step, written down as they happen; `total_bytes` counts what lives."""

    def __init__(self, bytes_before: int = 0):
        self.before = self.total = bytes_before
        self.events, self.sizes = [], {}

    def begin(self, operation: Operation) -> None:
        self.events.append(Event(float(len(self.events)), operation, begins=True))

    def alloc(self, address: int, size_bytes: int, operation: Operation | None = None) -> None:
        self.sizes[address] = size_bytes
        self._event(address, size_bytes, operation)

    def free(self, address: int) -> None:
        self._event(address, -self.sizes.pop(address), None)

    def free_unseen(self, address: int) -> None:
        self.total -= self.sizes.pop(address)

    def _event(self, address: int, size_bytes: int, operation: Operation | None) -> None:
        self.total += size_bytes
        self.events.append(Event(float(len(self.events)), operation, address, size_bytes, self.total))

    def lap(self) -> Lap:
        totals = [self.before, *(event.total_bytes for event in self.events if not event.begins)]
        return Lap(self.before, self.total, max(totals), events=self.events)


def step_of(script: Script, owners: Owners | None = None, attribution: Attribution | None = None):
    return (attribution or Attribution()).of(script.lap(), owners or Owners())


def test_every_kind_is_told_by_what_made_it():
    script = Script(bytes_before=100)
    script.alloc(1, 2000, GATHER)
    script.begin(BLOCK_FORWARD)
    script.alloc(2, 400, COPY_OUT)
    script.alloc(3, 80, LINEAR)
    script.begin(BLOCK_ENDS)
    script.alloc(4, 64, LINEAR)
    script.begin(ROOT_ENDS)
    script.alloc(5, 64, LOG_SOFTMAX)
    script.begin(NODE)
    script.alloc(6, 7, AGAIN)
    script.alloc(7, 9, NODE)
    script.alloc(8, 3000, REDUCE)
    step = step_of(script)
    assert step.terms == {
        "unsharded_parameters": 400,
        "all_gather": 2000,
        "reduce_scatter": 3000,
        "activations": 87,
        "logits": 128,
        "temporaries": 9,
        "other": 100,
    }
    assert list(step.terms) == [term for term in TERMS if term in step.terms]
    assert sum(step.terms.values()) == script.lap().peak_bytes


def test_a_collective_of_the_scripts_own_is_told_from_what_is_computed():
    script = Script()
    script.begin(OPTIMIZER)
    script.begin(CLIP)
    script.alloc(1, 10, Operation("c10d::_allgather_base_", None, is_recorded=True))
    script.alloc(2, 20, Operation("c10d::_reduce_scatter_base_", None))
    script.alloc(3, 5, Operation("aten::mul", None, is_recorded=True))
    assert step_of(script).terms == {"all_gather": 10, "reduce_scatter": 20, "temporaries": 5}


def test_phases_are_told_and_backward_goes_on_after_a_hook():
    script = Script()
    script.begin(ROOT_FORWARD)
    script.begin(ROOT_ENDS)
    script.begin(NODE)
    script.begin(CLIP)  # a hook's
    script.begin(NODE)
    script.begin(CLIP)
    script.begin(OPTIMIZER)
    script.begin(CLIP)
    step = step_of(script)
    assert step.phases == {
        "forward": 0.0,
        "loss": 1.0,
        "backward": 2.0,
        "after backward": 5.0,
        "optimizer": 6.0,
        "after the optimizer": 7.0,
    }


def test_the_optimizer_says_what_parameters_gradients_and_states_are():
    owners = Owners()
    owners.before = {1: ("sharded_parameters", 50), 2: ("sharded_gradients", 50)}
    owners.after = {3: ("optimizer", 100)}
    script = Script(bytes_before=60)  # the parameters and ten bytes more
    script.alloc(2, 50, REDUCE)
    script.begin(OPTIMIZER)
    script.alloc(3, 100, SQRT)
    script.alloc(4, 20, SQRT)
    step = step_of(script, owners)
    assert step.terms == {
        "sharded_parameters": 50,
        "sharded_gradients": 50,
        "optimizer": 100,
        "temporaries": 20,
        "other": 10,
    }


def test_an_optimizer_of_sparse_gradients_is_watched_without_harm():
    table = torch.nn.Embedding(8, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters())
    table(torch.tensor([1, 2])).sum().backward()
    owners = Owners()
    with owners.watching():
        optimizer.step()
    assert {kind for kind, _ in owners.before.values()} == {"sharded_parameters"}
    assert {kind for kind, _ in owners.after.values()} == {"optimizer"}


def test_what_a_step_leaves_is_known_in_the_next():
    attribution = Attribution()
    first, second = Script(), Script(bytes_before=64)
    first.alloc(1, 64, LOG_SOFTMAX)
    second.alloc(2, 30, LINEAR)
    step_of(first, attribution=attribution)
    assert step_of(second, attribution=attribution).terms == {"activations": 30, "logits": 64}


def test_what_has_gone_between_two_steps_is_not_counted():
    attribution = Attribution()
    first, second = Script(), Script(bytes_before=5)
    first.alloc(1, 64, LINEAR)
    second.alloc(2, 30, LINEAR)
    step_of(first, attribution=attribution)
    assert step_of(second, attribution=attribution).terms == {"activations": 30, "other": 5}


@pytest.mark.parametrize("order", ["older", "newer", "address taken again"])
def test_a_buffer_that_a_thread_frees_unseen_is_not_counted_for_ever(order):
    script = Script()
    script.alloc(1, 1000, GATHER)
    script.alloc(2, 1000, GATHER)
    gone, stays = (1, 2) if order == "older" else (2, 1)
    script.free_unseen(gone)
    script.alloc(3, 10, LINEAR)
    if order == "address taken again":
        script.alloc(gone, 1000, LINEAR)
        script.free(gone)
    script.free(stays)
    script.alloc(4, 5000, LINEAR)
    step = step_of(script)
    assert step.terms == {"activations": 5010}


def test_a_long_curve_keeps_its_peak():
    script = Script()
    for address in range(1, 3000):
        script.alloc(address, 3, LINEAR)
        if address % 3:
            script.free(address)
    step = step_of(script)
    assert len(step.curve) <= POINTS
    assert max(point.live_bytes for point in step.curve) == script.lap().peak_bytes


def test_terms_come_in_one_order_and_without_empty_ones():
    assert list(in_order({"other": 1, "logits": 0, "optimizer": 2})) == ["optimizer", "other"]
