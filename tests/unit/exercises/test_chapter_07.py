"""Chapter 07's exercises on every kind of answer."""

from cases import assert_number, recorded

from fsdp2_lab.contract.record import StageRow
from fsdp2_lab.contract.units import MIB
from fsdp2_lab.learn import q07a

SIZES = {"batch": 4, "seq": 256, "hidden": 256, "vocab": 384, "blocks": 4}


def test_what_waits_between_forward_and_backward(tmp_path):
    stages = [StageRow("forward", bytes_before=6 * MIB, bytes_after=int(14.6 * MIB))]
    run = recorded(tmp_path, stages=stages, values={"sizes": SIZES})
    assert_number(q07a, (run,), 8.5, {4.0: "last block", 2.0: "bfloat16", 5.5: "last norm"})
