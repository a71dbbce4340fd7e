"""Chapter 00's exercises on every kind of answer."""

from cases import assert_number, recorded

from fsdp2_lab.contract.record import StageRow
from fsdp2_lab.contract.units import MIB
from fsdp2_lab.learn import q00a


def test_what_training_leaves(tmp_path):
    run = recorded(tmp_path, stages=[StageRow("train", bytes_after=int(18.7 * MIB))], values={"parameters": 3_145_728})
    wrong = {24.0: "gradients", 36.0: "share", 48.0: "on one rank", 6.0: "two states"}
    assert_number(q00a, (run,), 18.0, wrong)
