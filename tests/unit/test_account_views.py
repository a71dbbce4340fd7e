"""The closed form on the page: what is drawn and written adds up to what the account says."""

import pytest

from fsdp2_lab import show
from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.units import GIB
from fsdp2_lab.predict.account import account
from fsdp2_lab.show import labels

JOB = dict(batch=1, seq=4096, device="cuda")
RANKS = [1, 2, 4, 8]


def test_the_bars_over_ranks_are_the_accounts_peaks():
    figure = show.over_ranks("llama-2-7b", RANKS, **JOB)
    peaks = [account("llama-2-7b", ranks, **JOB).peak_bytes / GIB for ranks in RANKS]
    for ax, expected in zip(figure.axes, (peaks[:3], peaks[2:]), strict=True):
        tops = [sum(bars[place].get_height() for bars in ax.containers) for place in range(len(expected))]
        assert tops == pytest.approx(expected)
        assert "predicted (CUDA)" in ax.get_title(loc="left")


def test_changes_begin_with_the_job_as_it_is():
    table = show.changes("llama-2-7b", 8, {"SGD": dict(optimizer="sgd"), "16 ranks": dict(ranks=16)}, **JOB)
    assert list(table.index) == [labels.AS_IT_IS, "SGD", "16 ranks"]
    assert table.loc["SGD", "peak"] == "9.51 GiB"
    assert table.loc["16 ranks", "peak"] != table.loc[labels.AS_IT_IS, "peak"]


def test_a_change_that_cannot_be_is_refused():
    with pytest.raises(UsageError, match="optimizer"):
        show.changes("llama-2-7b", 8, {"Lion": dict(optimizer="lion")}, **JOB)


def test_the_articles_terms_stand_beside_the_accounts():
    predicted = account("llama-2-7b", 8, **JOB)
    table = show.article(predicted)
    assert table.loc["O", labels.ARTICLE_COLUMN] == "6.05 GiB"
    assert table.loc[labels.STEP_PEAK, "predicted (CUDA)"] == "15.93 GiB"
    told = predicted.article
    assert told["state_bytes"] + told["boundary_bytes"] + sum(told["overhead_is"].values()) == predicted.peak_bytes
