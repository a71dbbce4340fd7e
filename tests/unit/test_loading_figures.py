"""The figure and the table of what loading costs the hosts."""

import pytest
from cases import recorded

from fsdp2_lab import show
from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.record import StageRow
from fsdp2_lab.contract.units import MIB
from fsdp2_lab.show.loading_figures import rises


def loaded(folder, peak: int, **fields):
    stages = [
        StageRow("shard", seconds=0.1, rss_bytes=300 * MIB, rss_peak_bytes=310 * MIB),
        StageRow("load", seconds=2.0, bytes_after=132 * MIB, rss_peak_bytes=peak * MIB),
    ]
    return recorded(folder, stages=stages, **fields)


def test_bars_stand_for_the_rise_and_the_filled_part_for_what_is_kept(tmp_path):
    runs = {"whole": loaded(tmp_path / "whole", 700), "slices": loaded(tmp_path / "slices", 440)}
    assert rises(runs["whole"]) == [400 * MIB] * 2
    (ax,) = show.loading(runs).axes
    assert [round(bar.get_height()) for bar in ax.patches] == [400, 132, 400, 132, 140, 132, 140, 132]
    assert [label.get_text() for label in ax.texts] == ["400", "400", "140", "140"]
    assert "measured (CPU)" in ax.get_title(loc="left")
    table = show.loading_table(runs)
    assert list(table["highest rise"]) == ["400.00 MiB", "140.00 MiB"] and list(table["how"]) == ["measured (CPU)"] * 2


def test_on_a_gpu_the_shards_are_not_the_hosts(tmp_path):
    (ax,) = show.loading({"slices": loaded(tmp_path, 310, device="cuda:0")}).axes
    assert [round(bar.get_height()) for bar in ax.patches] == [10, 10]


def test_a_run_without_the_numbers_is_named(tmp_path, is_one_sentence):
    single = recorded(tmp_path / "single", stages=[StageRow("load", rss_peak_bytes=1)])
    silent = recorded(tmp_path / "silent", stages=[StageRow("shard"), StageRow("load")])
    for run, missing in ((single, "no stage before"), (silent, "no resident memory")):
        with pytest.raises(UsageError, match=missing) as caught:
            show.loading({"run": run})
        assert is_one_sentence(str(caught.value))
