"""The shards of one tensor: the rule against torch's, every slider over its range, and the twin without widgets."""

from itertools import product
from types import SimpleNamespace

import pytest

from fsdp2_lab import show
from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.show.row_shards import RowShards, rows_by_rank
from fsdp2_lab.show.shard_widget import MOST

WIDGET = "application/vnd.jupyter.widget-view+json"


def said(controls) -> str:
    return controls.words.content["text/plain"]


def test_rows_are_cut_as_torch_chunk_cuts_them():
    import torch

    for rows, ranks in product(range(1, 66), range(1, 20)):
        chunks = [len(chunk) for chunk in torch.empty(rows, 2).chunk(ranks)]
        assert rows_by_rank(rows, ranks) == chunks + [0] * (ranks - len(chunks))


def test_what_is_said_follows_from_the_rows():
    shards = RowShards(ranks=4, rows=5, columns=256)
    assert (shards.held, shards.padding_rows, shards.padding_bytes) == ([2, 2, 1, 0], 3, 3 * 256 * 4)
    assert shards.largest_share == 0.4
    assert shards.text.splitlines()[:2] == [
        "5 × 256 over 4 ranks. Rows: 2, 2, 1, 0.",
        "1 rank without a row of it, with nothing but padding.",
    ]
    assert "40.0%" in shards.text and "25.0%" in shards.text and "3,072 bytes" in shards.text


def test_sliders_over_their_ranges_change_the_words_and_the_figure():
    widget = show.shard_widget()
    for name, slider in widget.controls.sliders.items():
        assert (slider.min, slider.max) == (1, MOST[name])
        for value in range(slider.max, 0, -1):
            before = said(widget.controls)
            slider.value = value
            assert getattr(widget.shards, name) == value
            assert said(widget.controls) != before or slider.max == value
            assert said(widget.controls) == repr(widget)
            assert widget.controls.picture.content["image/png"]


@pytest.mark.parametrize("ranks", range(1, MOST["ranks"] + 1))
def test_each_pair_of_places_has_an_answer(ranks):
    for rows in range(1, MOST["rows"] + 1):
        shards = RowShards(ranks, rows)
        assert sum(shards.held) == rows and max(shards.held) == shards.held[0]
        assert 0 <= shards.padding_rows < ranks * shards.held[0]
        assert shards.largest_share >= 1 / ranks - 1e-9
        assert len(shards.text.splitlines()) == (4 if 0 in shards.held else 3)


def test_the_figure_has_a_mark_where_every_equal_share_would_end():
    (ax,) = RowShards(4, 10).figure().axes
    assert [line.get_xdata()[0] * 12 for line in ax.lines] == pytest.approx([2.5, 5, 7.5, 10])
    assert [text.get_text() for text in ax.texts] == ["0–2", "3–5", "6–8", "9"]


def test_two_widgets_keep_apart():
    one, other = show.shard_widget(), show.shard_widget()
    words = said(other.controls)
    one.controls.sliders["ranks"].value = 9
    assert (one.shards.ranks, other.shards.ranks) == (9, 4)
    assert said(other.controls) == words != said(one.controls)


def test_it_begins_where_it_is_told_though_that_is_beyond_the_slider():
    controls = show.shard_widget(ranks=64, rows=704).controls
    assert (controls.sliders["ranks"].value, controls.sliders["rows"].value) == (64, 704)


@pytest.mark.parametrize("watched", [True, False])
def test_controls_are_shown_to_who_watches_and_a_figure_with_words_elsewhere(watched, monkeypatch):
    shown = []

    def display(item, raw=False, display_id=None):
        shown.append(item)

    parent = {"metadata": {"cellId": "a"} if watched else {}}
    shell = SimpleNamespace(kernel=SimpleNamespace(get_parent=lambda channel: parent))
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    monkeypatch.setattr("IPython.display.display", display)
    widget = show.shard_widget()
    widget._ipython_display_()
    if watched:
        box, figure, words = shown
        assert box[WIDGET]["model_id"] == widget.controls.box.model_id
        assert figure["image/png"] and words["text/plain"] == repr(widget)
    else:
        figure, words = shown
        assert len(figure.axes) == 1 and repr(words) == repr(widget)


@pytest.mark.parametrize(
    "bad", [dict(ranks=0), dict(ranks=1025), dict(rows=0), dict(rows=2.5), dict(columns="4"), dict(ranks=True)]
)
def test_numbers_out_of_range_are_refused_in_one_sentence(bad, is_one_sentence):
    with pytest.raises(UsageError) as caught:
        show.shard_widget(**bad)
    assert is_one_sentence(str(caught.value))


def test_only_what_is_chosen_can_change():
    with pytest.raises(UsageError):
        RowShards().change("watchers", 3)
