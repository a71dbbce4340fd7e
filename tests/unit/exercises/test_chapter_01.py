"""Chapter 01's exercises on every kind of answer."""

from cases import assert_number, recorded

from fsdp2_lab.learn import q01a, q01b, q01c, q01d
from fsdp2_lab.predict.account import account

SEVEN = dict(model="llama-2-7b", batch=1, seq=4096, device="cuda")


def test_parameters_are_counted():
    wrong = {7.0: "name", 6.607: "two matrices", 6.476: "blocks alone"}
    assert_number(q01a, (account(ranks=8, **SEVEN),), 6.74, wrong)


def test_bytes_of_a_number_in_bfloat16(tmp_path):
    parts = dict.fromkeys(("weight", "grad", "exp_avg", "exp_avg_sq"), 2)
    run = recorded(tmp_path, values={"bytes_each": {"bfloat16": parts}})
    assert_number(q01b, (run,), 8, {16: "master copy", 12: "2 bytes each", 6: "two states"})


def test_what_a_larger_batch_adds():
    accounts = (account(ranks=8, **SEVEN), account(ranks=8, **SEVEN | {"batch": 4}))
    assert_number(q01c, accounts, 4.8, {3.0: "2bshL", 0: "stay there", 9.0: "q01c.hint()"})


def test_ranks_that_it_takes():
    accounts = [account(ranks=ranks, **SEVEN) for ranks in (1, 2, 4, 8, 16)]
    assert_number(q01d, (accounts,), 8, {4: "16P/N alone", 16: "q01d.hint()"})
