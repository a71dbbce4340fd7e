"""Chapter 03's exercises on every kind of answer."""

from cases import assert_number, recorded

from fsdp2_lab.learn import q03a


def test_the_sum_after_a_reduce_scatter(tmp_path):
    run = recorded(tmp_path, values={"after_reduce_scatter_sum": [1.0, 1.0]})
    assert_number(q03a, (run,), 1, {2: "added"})
