"""Chapter 00's exercises on every kind of answer."""

import pytest
from cases import assert_choice, assert_number, recorded

from fsdp2_lab.contract.record import StageRow, StepRow
from fsdp2_lab.contract.units import MIB
from fsdp2_lab.learn import q00a, q00b, q00c, q00d


@pytest.fixture
def run(tmp_path):
    return recorded(
        tmp_path / "run",
        stages=[StageRow("train", bytes_after=int(18.7 * MIB))],
        steps=[StepRow(0, "train", loss=6.01, tokens=1024), StepRow(1, "train", loss=4.9, tokens=1024)],
        values={"parameters": 3_145_728},
        settings={"weights": "random", "batch": 4, "seq": 128},
    )


def test_what_training_leaves(run):
    wrong = {24.0: "gradients", 36.0: "share", 48.0: "on one rank", 6.0: "two states"}
    assert_number(q00b, (run,), 18.0, wrong)


def test_the_global_batch(run, tmp_path):
    assert_number(q00c, (run,), 1024, {512: "one rank's", 8: "sequences", 128: "q00c.hint()"})
    assert q00c.check(1024, recorded(tmp_path / "mesh", stages=[StageRow("mesh")])).kind == "note"


def test_the_loss_of_a_model_that_knows_nothing(run, tmp_path):
    assert_number(q00a, (run,), 5.95, {8.58: "bits", 5.55: "384 tokens", 0: "certainty", 2.9: "q00a.hint()"})
    trained = recorded(tmp_path / "trained", steps=[StepRow(0, loss=2.0)], settings={"weights": "auto"})
    assert q00a.check(5.95, trained).kind == "note"


def test_whose_loss_a_rank_records(run, tmp_path):
    assert_choice(q00d, (run,), "same")
    apart = recorded(tmp_path / "apart", steps=[StepRow(0, "train", loss=6.0)])
    apart.records[1].steps[0].loss = 5.9
    assert_choice(q00d, (apart,), "own")
    assert q00d.check("same", recorded(tmp_path / "alone", ranks=1, steps=[StepRow(0, loss=6.0)])).kind == "note"
