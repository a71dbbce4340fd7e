"""Chapter 08's exercises on every kind of answer."""

from cases import assert_number, recorded

from fsdp2_lab.contract.record import StepRow
from fsdp2_lab.contract.units import MIB
from fsdp2_lab.learn import q08a


def _peaking(folder, peak_mib: int):
    return recorded(folder, steps=[StepRow(step, peak_bytes=peak_mib * MIB, seconds=1.0) for step in range(2)])


def test_the_peak_of_n_against_one(tmp_path):
    evidence = (_peaking(tmp_path / "many", 45), _peaking(tmp_path / "one", 80))
    assert_number(q08a, evidence, 43.0, {80.0: "one rank alone", 10.0: "q08a.hint()"})
