"""Chapter 08's exercises on every kind of answer."""

import json

import pytest
from cases import assert_number, assert_repair, recorded

from fsdp2_lab.contract.record import StageRow, StepRow
from fsdp2_lab.contract.units import MIB
from fsdp2_lab.learn import q08a, q08b, q08c, q08d, q08e, q08f

PARAMETERS = 3 * MIB


def _peaking(folder, peak_mib: int):
    return recorded(folder, steps=[StepRow(step, peak_bytes=peak_mib * MIB, seconds=1.0) for step in range(2)])


def test_the_peak_of_n_against_one(tmp_path):
    evidence = (_peaking(tmp_path / "many", 45), _peaking(tmp_path / "one", 80))
    assert_number(q08a, evidence, 43.0, {80.0: "one rank alone", 10.0: "q08a.hint()"})


def _counting(folder, *tokens: int):
    run = recorded(folder, ranks=len(tokens), steps=[StepRow(0, values={"mine": 0.0})])
    for record, mine in zip(run.records, tokens, strict=True):
        record.steps[0].values["mine"] = mine
    return run


def test_a_token_among_few_weighs_more(tmp_path):
    assert_number(q08b, (_counting(tmp_path / "two", 512, 32),), 16, {1.0: "counts the same", 4.0: "q08b.hint()"})
    assert q08b.check(16, _counting(tmp_path / "one", 512)).kind == "note"


@pytest.fixture
def stepped(tmp_path):
    def make(name: str, loss: float = 2.0, norm: float = 1.5, ranks: int = 2):
        steps = [StepRow(step, loss=loss, values={"grad_norm": norm}) for step in range(3)]
        return recorded(tmp_path / name, ranks=ranks, steps=steps)

    return make


@pytest.mark.parametrize("fault", [{"loss": 2.1}, {"norm": 1.6}])
def test_the_mean_of_means_is_mended(fault, stepped):
    one = stepped("one", ranks=1)
    assert_repair(q08c, (stepped("broken", **fault), one), (stepped("mended"), one))
    assert q08c.check(one, one).kind == "note"


def test_whole_gradients_until_they_are_reduced(tmp_path):
    row = StageRow("held_back", bytes_before=10 * MIB, bytes_after=22 * MIB)
    run = recorded(tmp_path, stages=[row], values={"parameters": PARAMETERS})
    wrong = {6.0: "after a reduction", 24.0: "a gradient is one", 1.0: "q08d.hint()"}
    # Two bytes each are as many as a shard of two ranks; on four they are not.
    assert_number(q08d, (run,), 12.0, wrong)


def test_it_goes_on_after_the_newest_whole_state(tmp_path):
    run = recorded(tmp_path / "resumed", steps=[StepRow(step) for step in range(8, 12)])
    wrong = {0: "from the beginning", 7: "is in the state", 16: "never finished", 3: "q08e.hint()"}
    assert_number(q08e, (run,), 8, wrong)
    assert q08e.check(8, recorded(tmp_path / "none")).kind == "note"


def test_a_state_has_no_gradients(tmp_path):
    folder = tmp_path / "step-8"
    folder.mkdir()
    files = {f"shard-{rank}.safetensors": 18 * MIB for rank in range(2)}
    for name, size in files.items():
        with open(folder / name, "wb") as file:
            file.truncate(size)
    facts = dict(step=8, ranks=2, seed=0, sequences=8, seq=128, optimizer="AdamW", files=files)
    (folder / "state.json").write_text(json.dumps(facts))
    run = recorded(tmp_path / "run", values={"parameters": PARAMETERS})
    assert_number(q08f, (folder, run), 36.0, {48.0: "Gradients", 12.0: "the weights", 18.0: "one rank's", 2.0: "hint"})
