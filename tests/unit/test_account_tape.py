"""The tape keeps autograd's rules: what is saved lives until its backward, and gradients add up where they may."""

import pytest

from fsdp2_lab.predict.ledger import Ledger
from fsdp2_lab.predict.tape import NONE, SAME, VIEW, Sizes, Tape, Value

UNIT = 100  # bytes of every tensor here


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def tape_on(ledger, **options) -> Tape:
    return Tape(ledger, Sizes(x=UNIT), 1, **options)


def value(ledger) -> Value:
    return Value(ledger.alloc("activations", "given", "x", UNIT), "x", 1)


def closed(ledger) -> tuple[int, int]:
    """Highest and last bytes of what happened since the last call."""
    ledger.close("a segment")
    segment = ledger.segments[-1]
    return segment.peak_delta, sum(segment.to_end.values())


def give_gradient(tape, output) -> None:
    output.gradient = tape.temporary("x", 1)


def test_a_saved_tensor_outlives_its_name_until_backward(ledger):
    tape, x = tape_on(ledger), value(ledger)
    closed(ledger)
    y = tape.op("square", [x], saves=[x])
    tape.drop(x)
    assert closed(ledger) == (UNIT, UNIT)
    give_gradient(tape, y)
    tape.backward()
    assert closed(ledger) == (2 * UNIT, 0)  # two gradients beside x; then x and one gradient are gone


def test_without_saving_a_tensor_dies_with_its_name(ledger):
    tape, x = tape_on(ledger, saving=False), value(ledger)
    closed(ledger)
    tape.op("square", [x], saves=[x])
    tape.drop(x)
    assert closed(ledger) == (UNIT, 0)


def test_a_view_keeps_its_base(ledger):
    tape, x = tape_on(ledger), value(ledger)
    closed(ledger)
    y = tape.op("transpose", [x], is_view=True)
    tape.drop(x)
    assert closed(ledger) == (0, 0)
    tape.drop(y)
    assert closed(ledger) == (0, -UNIT)


def backward_of_two_uses(ledger, gradients: str) -> int:
    """The highest bytes of backward where x is used twice."""
    tape, x = tape_on(ledger), value(ledger)
    first, second = (tape.op("use", [x], gradients=gradients) for _ in range(2))
    for output in (first, second):
        give_gradient(tape, output)
    closed(ledger)
    tape.backward()
    peak, end = closed(ledger)
    assert end == -UNIT  # of two gradients one is left: x's
    return peak


def test_a_second_gradient_is_added_into_the_first(ledger):
    assert backward_of_two_uses(ledger, "new") == UNIT


def test_a_second_gradient_takes_new_memory_where_the_first_is_a_view(ledger):
    assert backward_of_two_uses(ledger, VIEW) == 2 * UNIT


def test_a_second_gradient_takes_new_memory_where_others_hold_the_first(ledger):
    tape, x = tape_on(ledger), value(ledger)
    given = value(ledger)
    early = tape.op("use", [x])
    late = tape.op("add", [x, given], gradients=SAME)
    for output in (early, late):
        give_gradient(tape, output)
    closed(ledger)
    tape.backward()  # x and the other input share one gradient when the second arrives
    assert closed(ledger) == (2 * UNIT, 0)


def test_the_parts_of_a_split_are_joined(ledger):
    tape, x = tape_on(ledger), Value(ledger.alloc("activations", "given", "3x", 3 * UNIT), "x", 3)
    parts = tape.split(x, "x", 1, 3)
    for part in parts:
        give_gradient(tape, part)
    closed(ledger)
    tape.backward()
    assert closed(ledger) == (3 * UNIT, 0)


def test_recomputing_ends_at_the_last_save(ledger):
    tape, x = tape_on(ledger, stop_after=2), value(ledger)
    closed(ledger)
    middle = tape.op("first", [x], saves=[x])
    last = tape.op("second", [middle], saves=[middle])
    tape.op("more", [last], gradients=SAME)
    assert closed(ledger) == (UNIT, UNIT)  # the middle alone: nobody needs what follows


def test_weights_gradients_stay_and_scratch_goes(ledger):
    tape, x = tape_on(ledger), value(ledger)
    y = tape.op("linear", [x], gradients=NONE, weights=["x"], scratch=[("x", 2)])
    give_gradient(tape, y)
    closed(ledger)
    tape.backward()
    assert closed(ledger) == (3 * UNIT, 0)
    assert [storage.size_bytes for storage in tape.weight_gradients] == [UNIT]
