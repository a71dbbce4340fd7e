"""Chapter 13's exercises on every kind of answer."""

from cases import assert_number

from fsdp2_lab.learn import q13a, q13b, q13c, q13d
from fsdp2_lab.predict.plan import fit, largest_batch, smallest_ranks


def test_the_peak_on_four_gpus():
    evidence = fit("llama-2-7b", ranks=4, gib_per_gpu=40, batch=1, seq=2048)
    assert_number(q13a, (evidence,), 31.5, {25.1: "4 bytes more", 100.4: "divided", 18.8: "gradients"})


def test_the_largest_batch():
    evidence = largest_batch("llama-2-7b", ranks=4, gib_per_gpu=80, seq=2048)
    # (78 - 31.5) / 0.5, (78 - 31.5) / 1.42, (78 - 18.8) / 0.5
    wrong = {93: "Logits", 32: "Two moments", 118: "more than its", 13: "q13b.hint()"}
    assert_number(q13b, (evidence,), 41, wrong)


def test_the_smallest_number_of_ranks():
    evidence = smallest_ranks("llama-3.1-70b", gib_per_gpu=80, batch=1, seq=4096)
    assert_number(q13c, (evidence,), 32, {16: "16P/N would fit", 8: "twice", 64: "Half as many"})


def test_what_twice_as_many_ranks_save():
    evidence = [fit("llama-3.1-405b", ranks, gib_per_gpu=80, batch=1, seq=4096) for ranks in (512, 1024)]
    assert_number(q13d, tuple(evidence), 4.4, {34.3: "everything", 8.9: "half of it", 5.9: "early in backward"})
