"""Chapter 05's exercises on every kind of answer."""

from cases import assert_number, recorded

from fsdp2_lab.contract.record import StageRow
from fsdp2_lab.contract.units import MIB
from fsdp2_lab.learn import q05a


def test_what_a_rank_holds(tmp_path):
    run = recorded(tmp_path, stages=[StageRow("allocate", bytes_after=6 * MIB)], values={"parameters": 3_145_728})
    assert_number(q05a, (run,), 6.0, {12.0: "data parallelism", 24.0: "No gradient"})
