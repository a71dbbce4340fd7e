"""Chapter 04's exercises on every kind of answer."""

from cases import assert_choice, assert_number, assert_repair, recorded

from fsdp2_lab.contract.record import MEASURED_CUDA, StageRow
from fsdp2_lab.learn import q04a, q04b, q04c, q04d, q04e
from fsdp2_lab.predict.account import account

MIB = 2**20


def test_what_the_ordinary_way_allocates(tmp_path):
    run = recorded(tmp_path, stages=[StageRow("ordinary", bytes_after=12 * MIB)])
    assert_number(q04a, (run,), 12.0, {6.0: "all of it", 48.0: "not 16", 13.0: "q04a.hint()"})


def test_eight_copies_of_7b():
    seven = account("llama-2-7b", ranks=8)
    assert_number(q04b, (seven,), 200, {25.1: "one copy;", 100.4: "bfloat16;", 12.55: "one copy in bfloat16"})


def test_one_parameter_is_there_at_a_time(tmp_path):
    stages = [StageRow("meta", peak_bytes=150 * MIB)]
    run = recorded(tmp_path / "cpu", stages=stages, values={"parameters": 124_439_808})
    assert_number(q04c, (run,), 147, {474.7: "all of them", 300: "one after the other", 75: "4 bytes"})
    gpu = recorded(tmp_path / "gpu", stages=stages, values={"parameters": 124_439_808}, how=MEASURED_CUDA)
    assert q04c.check(147, gpu).kind == "note"


def test_a_tied_weight_becomes_two(tmp_path):
    run = recorded(tmp_path, ranks=1, values={"tied": {"before tie_weights": {"one tensor": False}}})
    assert_choice(q04d, (run,), "two")


def test_garbage_buffers_are_counted_and_mended(tmp_path):
    broken = recorded(tmp_path / "broken", values={"wrong_buffers": ["inv_freq", "original_inv_freq"]})
    mended = recorded(tmp_path / "mended", values={"wrong_buffers": []})
    assert_repair(q04e, (broken,), (mended,))
    assert "4 buffers" in q04e.check(broken).text
