"""Chapter 06's exercises on every kind of answer."""

from cases import assert_number, recorded

from fsdp2_lab.contract.record import StageRow
from fsdp2_lab.contract.units import MIB
from fsdp2_lab.learn import q06a


def test_what_loading_costs_rank_0(tmp_path):
    stages = [StageRow("load", bytes_after=6 * MIB, peak_bytes=18 * MIB)]
    run = recorded(tmp_path, stages=stages, values={"parameters": 3_145_728})
    assert_number(q06a, (run,), 18.0, {12.0: "copy alone", 6.0: "other rank", 24.0: "two whole models"})
