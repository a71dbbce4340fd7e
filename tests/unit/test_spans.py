"""When units are gathered and freed, from events written down by hand: what real ranks do not do on demand."""

from fsdp2_lab.contract import sharded
from fsdp2_lab.rank import spans as spans_file
from fsdp2_lab.rank.allocator import Event, Lap, Operation
from fsdp2_lab.rank.fsdp_names import mark_of
from fsdp2_lab.rank.spans import SpanFinder


class Script:
    """Events of a step, a millisecond apart; a span lasts until the last event inside it."""

    def __init__(self):
        self.events, self.open = [], []

    def begin(self, name: str, lasts: int, is_backward: bool = False) -> "Script":
        seconds = len(self.events) / 1000
        operation = Operation(name, None, is_backward=is_backward)
        self.events.append(Event(seconds, operation, begins=True, end_seconds=seconds + (lasts + 0.5) / 1000))
        return self

    def bytes(self, address: int, size_bytes: int) -> "Script":
        self.events.append(Event(len(self.events) / 1000, None, address, size_bytes, 0))
        return self

    def lap(self) -> Lap:
        return Lap(0, 0, 0, events=self.events)


def gather(script: Script, unit: str, address: int) -> Script:
    script.begin(f"FSDP::pre_forward{unit}", 6).begin(f"FSDP::all_gather{unit}", 1).begin("c10d::_allgather_base_", 0)
    return script.begin(f"FSDP::all_gather_copy_out{unit}", 1).bytes(address, 100).bytes(9000, 8).bytes(9000, -8)


def told(spans) -> list[tuple]:
    return [(span.kind, span.unit, span.start_seconds, span.end_seconds, span.size_bytes) for span in spans]


def test_a_unit_is_gathered_from_its_copy_out_until_its_last_parameter_is_freed():
    script = gather(Script(), " (layers.0)", 1)
    script.begin("FSDP::post_forward (layers.0)", 1).bytes(1, -100)
    assert told(SpanFinder().of(script.lap())) == [
        ("all_gather", "layers.0", 0.001, 0.0025, None),
        ("gathered", "layers.0", 0.004, 0.008, 100),
        ("forward", "layers.0", 0.0065, 0.007, None),
    ]


def test_a_unit_that_nobody_frees_is_gathered_to_the_end_and_through_the_next_step():
    finder = SpanFinder()
    first = gather(Script(), "", 1)
    assert told(finder.of(first.lap()))[-1] == ("gathered", "root", 0.004, 0.006, 100)
    second = Script().begin("aten::mm", 1).bytes(2, 50).bytes(2, -50).begin("FSDP::post_backward_reshard", 1)
    assert told(finder.of(second.bytes(1, -100).lap())) == [("gathered", "root", 0.0, 0.004, 100)]
    assert finder.of(Script().begin("aten::mm", 0).lap()) == []


def test_what_was_freed_between_two_steps_is_gathered_anew():
    finder = SpanFinder()
    finder.of(gather(Script(), "", 1).lap())
    again = gather(Script(), "", 2).begin("FSDP::post_forward", 1).bytes(2, -100)
    assert [span[2:] for span in told(finder.of(again.lap())) if span[0] == "gathered"] == [(0.004, 0.008, 100)]


def test_what_was_gathered_before_the_first_step_is_told_when_it_is_freed():
    script = Script().begin("FSDP::post_backward_reshard (layers.1)", 3).bytes(7, -60).bytes(8, -40)
    assert told(SpanFinder().of(script.lap())) == [("gathered", "layers.1", 0.0, 0.002, 100)]


def test_what_backward_computes_again_is_no_forward():
    script = Script().begin("torch::autograd::Node", 9, is_backward=True)
    script.begin("FSDP::pre_forward (layers.0)", 1).bytes(1, 5).begin("FSDP::post_forward (layers.0)", 0)
    assert [span.kind for span in SpanFinder().of(script.lap())] == ["gathered"]


def test_a_reduction_without_a_collective_is_none():
    alone = Script().begin("FSDP::post_backward_reduce (a)", 2).bytes(1, 5)
    among = Script().begin("FSDP::post_backward_reduce (a)", 2).begin("c10d::_reduce_scatter_base_", 0).bytes(1, 5)
    summed = Script().begin("FSDP::post_backward_reduce (a)", 2).begin("c10d::allreduce_", 0)
    assert SpanFinder().of(alone.lap()) == SpanFinder().of(summed.lap()) == SpanFinder().of(Lap(0, 0, 0)) == []
    assert told(SpanFinder().of(among.lap())) == [("reduce_scatter", "a", 0.0, 0.0025, None)]


def test_a_record_keeps_no_more_spans_than_its_limit(monkeypatch):
    monkeypatch.setattr(spans_file, "MOST_SPANS", 2)
    script = gather(gather(Script(), " (a)", 1), " (b)", 2)
    assert [span.unit for span in SpanFinder().of(script.lap())] == ["a", "a"]
    assert sharded.MOST_SPANS > 80 * 7 * 2  # a deep model's, and twice its passes


def test_names_are_read_with_their_unit():
    assert mark_of("FSDP::all_gather (model.layers.0)") == ("FSDP::all_gather", "model.layers.0")
    assert mark_of("FSDP::all_gather (embed, lm_head) [pg=4]") == ("FSDP::all_gather", "embed, lm_head")
    assert mark_of("FSDP::pre_forward") == ("FSDP::pre_forward", "")
    assert mark_of("FSDP::backward_prefetch for layers.0") == ("FSDP::backward_prefetch", "")
    assert mark_of("aten::mm") is None
