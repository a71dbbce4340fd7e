"""Each exercise on nothing, on nonsense, on wrong answers and on the solution."""

import pytest

from fsdp2_lab.contract.record import RankRecord, StageRow, StepRow, write_record
from fsdp2_lab.contract.units import MIB
from fsdp2_lab.lab.runs import Run
from fsdp2_lab.learn import (
    q00,
    q01a,
    q01b,
    q01c,
    q01d,
    q02a,
    q02b,
    q02c,
    q02d,
    q03,
    q04,
    q05,
    q06,
    q07,
    q08,
    q13a,
    q13b,
    q13c,
    q13d,
)
from fsdp2_lab.predict.account import account
from fsdp2_lab.predict.plan import fit, largest_batch, smallest_ranks

PARAMETERS = 3_145_728  # 12 MiB in float32
SIZES = {"batch": 4, "seq": 256, "hidden": 256, "vocab": 384, "blocks": 4}


@pytest.fixture
def run(tmp_path) -> Run:
    """Two ranks of a model of 12 MiB, as the chapters' stages would record it."""
    return _recorded(tmp_path / "run", step_peak_bytes=45 * MIB)


@pytest.fixture
def alone(tmp_path) -> Run:
    """The same model with a higher step peak, as one rank alone has it."""
    return _recorded(tmp_path / "alone", step_peak_bytes=80 * MIB)


def _recorded(folder, step_peak_bytes: int, sent: int = 3) -> Run:
    stages = [
        StageRow("ordinary", bytes_after=12 * MIB),
        StageRow("allocate", bytes_after=6 * MIB),
        StageRow("load", bytes_after=6 * MIB, peak_bytes=18 * MIB),
        StageRow("forward", bytes_before=6 * MIB, bytes_after=int(14.6 * MIB)),
        StageRow("train", bytes_after=int(18.7 * MIB)),
    ]
    terms = {"sharded_parameters": 16 * MIB, "sharded_gradients": 6 * MIB, "optimizer": 16 * MIB}
    steps = [StepRow(0, peak_bytes=33 * MIB, seconds=1.0)]
    steps += [StepRow(1, loss=2.0, peak_bytes=step_peak_bytes, seconds=1.0, values={"sent_bytes": sent}, terms=terms)]
    for rank in range(2):
        record = RankRecord(rank, 2, rank, "host", 1, "cpu", "measured (CPU)", 0.0, {}, [], {}, "ok", stages, steps)
        record.values = {"parameters": PARAMETERS, "sizes": SIZES, "after_reduce_scatter_sum": [1.0, 1.0]}
        record.values["bytes_each"] = {"bfloat16": dict.fromkeys(("weight", "grad", "exp_avg", "exp_avg_sq"), 2)}
        write_record(folder, record)
    return Run(folder)


# exercise, right answer, wrong answer, a word of the reason
CASES = [
    (q00, 18.0, 24.0, "gradients"),
    (q00, 18.0, 36.0, "share"),
    (q00, 18.0, 48.0, "on one rank"),
    (q00, 18.0, 6.0, "two states"),
    (q01b, 8, 16, "master copy"),
    (q01b, 8, 12, "2 bytes each"),
    (q01b, 8, 6, "two states"),
    (q02a, 38.0, 32.0, "every rank still has all"),
    (q02a, 38.0, 48.0, "ZeRO-1"),
    (q02a, 38.0, 64.0, "divides nothing"),
    (q03, 1, 2, "added"),
    (q04, 12.0, 6.0, "all of it"),
    (q05, 6.0, 12.0, "data parallelism"),
    (q05, 6.0, 24.0, "No gradient"),
    (q06, 18.0, 12.0, "copy alone"),
    (q06, 18.0, 6.0, "other rank"),
    (q06, 18.0, 24.0, "two whole models"),
    (q07, 8.5, 4.0, "last block"),
    (q07, 8.5, 2.0, "bfloat16"),
    (q07, 8.5, 5.5, "last norm"),
    (q08, 43.0, 80.0, "one rank alone"),
    (q08, 43.0, 10.0, "q08.hint()"),
]


SEVEN = dict(model="llama-2-7b", batch=1, seq=4096, device="cuda")
ACCOUNTS = [account(ranks=ranks, **SEVEN) for ranks in (1, 2, 4, 8, 16)]
FOUR = account(ranks=8, **SEVEN | {"batch": 4})
SEVEN_ON_FOUR = [fit("llama-2-7b", ranks=4, gib_per_gpu=40, batch=1, seq=2048)]
LARGEST = [largest_batch("llama-2-7b", ranks=4, gib_per_gpu=80, seq=2048)]
SEVENTY = [smallest_ranks("llama-3.1-70b", gib_per_gpu=80, batch=1, seq=4096)]
DOUBLED = [fit("llama-3.1-405b", ranks, gib_per_gpu=80, batch=1, seq=4096) for ranks in (512, 1024)]
# exercise, evidence, right answer, wrong answer, a word of the reason
ON_ACCOUNTS = [
    (q01a, ACCOUNTS[3:4], 6.74, 7.0, "name"),
    (q01a, ACCOUNTS[3:4], 6.74, 6.607, "two matrices"),
    (q01a, ACCOUNTS[3:4], 6.74, 6.476, "blocks alone"),
    (q01c, [ACCOUNTS[3], FOUR], 4.8, 3.0, "2bshL"),
    (q01c, [ACCOUNTS[3], FOUR], 4.8, 0, "stay there"),
    (q01c, [ACCOUNTS[3], FOUR], 4.8, 9.0, "q01c.hint()"),
    (q01d, [ACCOUNTS], 8, 4, "16P/N alone"),
    (q01d, [ACCOUNTS], 8, 16, "q01d.hint()"),
    (q13a, SEVEN_ON_FOUR, 31.5, 25.1, "4 bytes more"),
    (q13a, SEVEN_ON_FOUR, 31.5, 100.4, "divided"),
    (q13a, SEVEN_ON_FOUR, 31.5, 18.8, "gradients"),
    (q13b, LARGEST, 41, 93, "Logits"),  # (78 - 31.5) / 0.5
    (q13b, LARGEST, 41, 32, "Two moments"),  # (78 - 31.5) / 1.42
    (q13b, LARGEST, 41, 118, "more than its"),  # (78 - 18.8) / 0.5
    (q13b, LARGEST, 41, 13, "q13b.hint()"),
    (q13c, SEVENTY, 32, 16, "16P/N would fit"),
    (q13c, SEVENTY, 32, 8, "twice"),
    (q13c, SEVENTY, 32, 64, "Half as many"),
    (q13d, DOUBLED, 4.4, 34.3, "everything"),
    (q13d, DOUBLED, 4.4, 8.9, "half of it"),
    (q13d, DOUBLED, 4.4, 5.9, "early in backward"),
]


@pytest.mark.parametrize(("exercise", "evidence", "right", "wrong", "reason"), ON_ACCOUNTS)
def test_an_account_answers_as_a_run_does(exercise, evidence, right, wrong, reason):
    found = exercise.check(right, *evidence)
    assert found.right and found.text.startswith(f"{exercise.how} ")
    verdict = exercise.check(wrong, *evidence)
    assert not verdict.right and reason in verdict.text
    assert exercise.check(None).kind == "unanswered"
    assert exercise.check("some", *evidence).kind == "not yet"
    assert exercise.hint().text and exercise.solution().text


@pytest.mark.parametrize(("exercise", "right", "wrong", "reason"), CASES)
def test_a_right_answer_is_right_and_a_wrong_one_gets_its_reason(run, alone, exercise, right, wrong, reason):
    evidence = (run, alone) if exercise is q08 else (run,)
    assert exercise.check(right, *evidence).right
    verdict = exercise.check(wrong, *evidence)
    assert not verdict.right
    assert reason in verdict.text


@pytest.mark.parametrize("exercise", [q00, q01b, q02a, q03, q04, q05, q06, q07, q08])
def test_nothing_and_nonsense_are_answered_kindly(run, exercise):
    evidence = (run, run) if exercise is q08 else (run,)
    for nothing in (None, ...):
        assert exercise.check(nothing, *evidence).kind == "unanswered"
    for nonsense in ("12", True, [6.0], {}, float("nan")):
        verdict = exercise.check(nonsense, *evidence)
        assert verdict.kind == "not yet"
        assert "<" not in verdict._repr_html_().replace("<div", "").replace("</div>", "").replace("<b>", "").replace(
            "</b>", ""
        )
    assert exercise.hint().text and exercise.solution().text


def test_what_stages_send_is_compared(run, tmp_path):
    zero0 = _recorded(tmp_path / "zero0", step_peak_bytes=70 * MIB, sent=2)
    assert q02b.check(1.5, run, zero0).right
    assert "half of what" in q02b.check(3, run, zero0).text
    assert "gathers once more" in q02b.check(1, run, zero0).text
    assert q02c.check(7 / 16).right and "ZeRO-3" in q02c.check(0.25).text
    for exercise in (q02b, q02c):
        assert exercise.check(None).kind == "unanswered" and exercise.hint().text and exercise.solution().text


def test_a_repair_is_measured(run, alone, tmp_path):
    assert q02d.check(run, alone).right
    broken = _recorded(tmp_path / "broken", step_peak_bytes=1)
    broken.records[0].steps[1].loss = 2.1
    verdict = q02d.check(broken, alone)
    assert verdict.kind == "not yet" and "5.0e-02" in verdict.text
    assert q02d.hint().text != q02d.hint(2).text == q02d.hint(99).text
    assert "all_gather_into_tensor" in q02d.solution().text
