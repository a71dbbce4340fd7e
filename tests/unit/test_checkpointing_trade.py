"""The trade's controls over their ranges, its words and figure, and the twin without widgets."""

from itertools import product
from types import SimpleNamespace

import pytest
from matplotlib.colors import to_hex

from fsdp2_lab import show
from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.units import GIB, format_bytes
from fsdp2_lab.predict.trade import trade
from fsdp2_lab.show.checkpointing_trade import MODELS
from fsdp2_lab.show.palette import TERM_COLOURS
from fsdp2_lab.show.traded_job import TradedJob

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def controls():
    return show.checkpointing_trade("llama-3.2-1b", ranks=8, batch=1, seq=1024, blocks=4).controls


@pytest.fixture
def no_figures(monkeypatch):
    monkeypatch.setattr(TradedJob, "figure", lambda job: None)


def said(controls) -> str:
    return controls.words.content["text/plain"]


@pytest.mark.parametrize("name, values", {"batch": (16, 1), "seq": (32768, 512), "blocks": (16, 0)}.items())
def test_a_slider_at_its_ends_changes_the_job_the_words_and_the_figure(controls, name, values):
    slider = getattr(controls, name)
    for value in values:
        words, image = said(controls), controls.picture.content["image/png"]
        slider.value = value
        assert said(controls) != words and controls.picture.content["image/png"] != image
    ends = [slider.options[-1][1], slider.options[0][1]] if name != "blocks" else [slider.max, slider.min]
    assert tuple(ends) == values


def test_every_number_of_blocks_has_an_answer(controls, no_figures):
    for blocks in range(17):
        controls.blocks.value = blocks
        found = trade("llama-3.2-1b", 8, blocks, batch=1, seq=1024, device="cuda")
        assert controls.job.found == found
        assert f"{blocks} of 16 blocks checkpointed" in said(controls)
        assert f"wait {format_bytes(found.held_bytes)};" in said(controls)
        assert f"{found.work:.2f} times the FLOPs" in said(controls)


def test_another_model_has_other_blocks_and_all_stay_all(controls, no_figures):
    controls.model.value = "llama-2-7b"
    assert (controls.blocks.max, controls.blocks.value, controls.job.blocks) == (32, 4, 4)
    controls.blocks.value = 32
    assert controls.job.blocks is None
    controls.model.value = "llama-3.1-70b"
    assert (controls.blocks.max, controls.blocks.value) == (80, 80)
    controls.blocks.value = 40
    controls.model.value = "llama-3.2-1b"
    assert (controls.blocks.max, controls.blocks.value, controls.job.blocks) == (16, 16, None)


@pytest.mark.parametrize("model", MODELS)
def test_all_ends_in_all_combinations_have_an_answer_or_a_sentence(model, is_one_sentence):
    for batch, seq, blocks in product((1, 16), (512, 32768), (0, 16, None)):
        lines = TradedJob(model, 8, batch, seq, blocks).lines()
        assert all(is_one_sentence(line) for line in lines[1:] or lines)
        assert len(lines) == 5 or ("positions for" in lines[0] and seq > 4096)


def test_the_fewest_blocks_are_those_below_which_the_peak_rises():
    job = TradedJob("llama-2-7b", 8, 1, 4096)
    assert 0 < job.fewest < 32
    assert job.at(job.fewest).peak_bytes == job.at(None).peak_bytes < job.at(job.fewest - 1).peak_bytes
    assert f"first {job.fewest}." in job.text
    assert "takes all of them" in TradedJob("llama-2-7b", 8, 4, 4096).text


@pytest.mark.parametrize("model", MODELS)
def test_no_peak_rises_where_one_block_more_is_checkpointed(model):
    for batch, seq in ((1, 512), (1, 4096), (8, 4096)):
        job = TradedJob(model, 8, batch, seq)
        peaks = [job.at(blocks).peak_bytes for blocks in range(job.layers + 1)]
        assert peaks == sorted(peaks, reverse=True)


def test_a_model_takes_longer_sequences_than_another(controls):
    controls.seq.value = 32768
    controls.model.value = "llama-2-7b"
    assert "positions for 4096 tokens" in said(controls) and "image/png" not in controls.picture.content
    controls.seq.value = 4096
    assert "image/png" in controls.picture.content


def test_two_trades_keep_apart():
    one, other = show.checkpointing_trade(), show.checkpointing_trade()
    words = said(other.controls)
    one.controls.blocks.value = 3
    assert said(other.controls) == words != said(one.controls)
    assert other.job.blocks is None


def test_the_figure_draws_the_jobs_bytes_and_its_place_on_the_curve():
    job = TradedJob("llama-2-7b", 8, 1, 4096, 20)
    bars, curve = job.figure().axes
    inputs, *_, logits = bars.patches
    assert inputs.get_width() == pytest.approx(job.found.held["block inputs"] / GIB)
    assert logits.get_width() == pytest.approx(job.found.held["logits"] / GIB)
    assert to_hex(logits.get_facecolor()) == TERM_COLOURS["logits"].lower()
    line, here = curve.lines
    assert (line.get_xdata()[0], line.get_xdata()[-1]) == (1, job.at(None).work)
    assert here.get_xdata()[0] == job.found.work and here.get_ydata()[0] == job.found.peak_bytes / GIB
    assert all("predicted (CUDA)" in ax.get_title(loc="left") for ax in (bars, curve))


@pytest.mark.parametrize("watched", [True, False])
def test_controls_are_shown_to_who_watches_beside_what_a_file_keeps(watched, monkeypatch):
    shown = []

    def display(item, raw=False, display_id=None):
        shown.append(item)

    parent = {"metadata": {"cellId": "a"} if watched else {}}
    shell = SimpleNamespace(kernel=SimpleNamespace(get_parent=lambda channel: parent))
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    monkeypatch.setattr("IPython.display.display", display)
    one = show.checkpointing_trade("llama-3.2-1b", seq=512)
    one._ipython_display_()
    if watched:
        box, figure, words = shown
        assert box[WIDGET]["model_id"] == one.controls.box.model_id and "run this cell" in box["text/plain"]
        assert figure["image/png"] and words["text/plain"] == one.job.text
    else:
        figure, words = shown
        assert len(figure.axes) == 2 and repr(words) == one.job.text == repr(one)


BAD = {
    "no such model": dict(model="llama-9"),
    "no ranks": dict(ranks=0),
    "more blocks than there are": dict(blocks=33),
    "too long": dict(seq=8192),
}


@pytest.mark.parametrize("job", BAD.values(), ids=BAD)
def test_a_job_that_cannot_be_is_refused_in_one_sentence(job, is_one_sentence):
    with pytest.raises(UsageError) as caught:
        show.checkpointing_trade(**job)
    assert is_one_sentence(str(caught.value))


def test_only_what_is_chosen_can_change():
    with pytest.raises(UsageError):
        TradedJob().change("ranks", 4)
