"""Chapter 04's exercises on every kind of answer."""

from cases import assert_number, recorded

from fsdp2_lab.contract.record import StageRow
from fsdp2_lab.contract.units import MIB
from fsdp2_lab.learn import q04a


def test_what_the_ordinary_way_allocates(tmp_path):
    run = recorded(tmp_path, stages=[StageRow("ordinary", bytes_after=12 * MIB)])
    assert_number(q04a, (run,), 12.0, {6.0: "all of it"})
