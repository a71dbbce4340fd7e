"""Extension over depth, on made-up steps whose peak at any depth is known by hand."""

import pytest

pytest.importorskip("torch")

from fsdp2_lab.predict.extend import DEPTHS, NotAlike, extend, peak_of
from fsdp2_lab.predict.live import Block, Moment, StepLog


def step(depth: int, per_layer=lambda layer: 10, loss_bytes: int = 100) -> StepLog:
    """A forward that keeps some bytes for each layer, and a loss that needs `loss_bytes` for a moment."""
    log, live, event = StepLog(), 0, 0
    for layer in range(depth):
        event += 1
        live += per_layer(layer)
        log.blocks.append(Block(per_layer(layer), "activations", event))
        log.moments.append(Moment(event, live, "forward", "pre_forward", f"model.layers.{layer}", "aten::mm"))
    log.blocks.append(Block(loss_bytes, "logits", event + 1, event + 2))
    log.moments.append(Moment(event + 1, live + loss_bytes, "loss", "post_forward", "", "aten::mm"))
    return log


@pytest.mark.parametrize("layers", [7, 12, 126])
def test_an_extended_peak_is_the_one_played_at_full_depth(layers):
    extended, played = extend([step(depth) for depth in DEPTHS], layers), peak_of(step(layers))
    assert (extended.peak_bytes, extended.terms) == (played.peak_bytes, played.terms)
    assert extended.terms == {"activations": 10 * layers, "logits": 100}


def test_the_peak_moves_to_where_it_is_in_the_deep_model():
    def two_phases(depth):
        # An optimizer that takes 40 bytes a layer overtakes a loss of 500 at 17 layers; no depth played shows it.
        log = step(depth, loss_bytes=500)
        log.blocks.append(Block(30 * depth, "temporaries", 1000, 1002))
        log.moments.append(Moment(1001, 40 * depth, "optimizer", "", "", "aten::sqrt"))
        return log

    shallow, deep = (extend([two_phases(depth) for depth in DEPTHS], layers) for layers in (10, 30))
    assert (shallow.peak_bytes, shallow.place) == (600, "loss, at mm")
    assert (deep.peak_bytes, deep.place) == (1200, "optimizer, at sqrt")


def test_layers_that_do_not_all_cost_the_same_are_not_extended():
    with pytest.raises(NotAlike):
        extend([step(depth, lambda layer: 10 + 90 * (layer % 2)) for depth in DEPTHS], 20)


def test_what_other_depths_do_not_do_is_not_extended():
    logs = [step(depth) for depth in DEPTHS]
    logs[0].moments.append(Moment(2000, 900, "loss", "post_forward", "", "aten::cat"))
    with pytest.raises(NotAlike):
        extend(logs, 20)
