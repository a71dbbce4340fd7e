"""Chapter 02's exercises on every kind of answer."""

import pytest
from cases import assert_number, assert_repair, recorded

from fsdp2_lab.contract.record import StepRow
from fsdp2_lab.contract.units import MIB
from fsdp2_lab.learn import q02a, q02b, q02c, q02d

TERMS = {"sharded_parameters": 16 * MIB, "sharded_gradients": 6 * MIB, "optimizer": 16 * MIB}


@pytest.fixture
def ran(tmp_path):
    """Makes a run of two steps that sent so many bytes in each, with this loss in the second."""

    def make(name: str, sent: int = 3, loss: float = 2.0, terms: dict = TERMS, ranks: int = 2):
        steps = [
            StepRow(step, loss=loss, peak_bytes=45 * MIB, seconds=1.0, values={"sent_bytes": sent}, terms=terms)
            for step in range(2)
        ]
        return recorded(tmp_path / name, ranks=ranks, steps=steps)

    return make


def test_what_zero_2_holds(ran):
    wrong = {32.0: "every rank still has all", 48.0: "ZeRO-1", 64.0: "divides nothing"}
    assert_number(q02a, (ran("zero2"),), 38.0, wrong)


def test_what_stages_send(ran):
    evidence = (ran("zero3"), ran("zero0", sent=2))
    assert_number(q02b, evidence, 1.5, {3: "half of what", 1: "gathers once more"})


def test_a_formula_for_four_ranks():
    assert_number(q02c, (), 7 / 16, {0.25: "ZeRO-3", 0.875: "half as many"})


def test_the_stale_weights_are_mended(ran):
    one = ran("one")
    assert_repair(q02d, (ran("stale", loss=2.1), one), (ran("mended"), one))
    assert "5.0e-02" in q02d.check(ran("stale again", loss=2.1), one).text


def test_no_formula_stands_in_for_a_measurement(ran):
    alone = ran("alone", sent=0, ranks=1)
    assert q02a.check(38.0, ran("untraced", terms={})).kind == "note"
    assert q02b.check(1.5, alone, alone).kind == "note"
