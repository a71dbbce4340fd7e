"""Places beside controls: shown anew wherever they stand, with what a file without a kernel can show."""

from types import SimpleNamespace

from matplotlib.figure import Figure

from fsdp2_lab.show.places import Place, Words, picture


def test_a_place_is_changed_wherever_it_is_shown(monkeypatch):
    shown, updates = [], []

    def display(content, raw, display_id):
        shown.append(content)
        return SimpleNamespace(update=lambda content, raw: updates.append(content))

    monkeypatch.setattr("IPython.display.display", display)
    place = Place()
    place.put({"text/plain": "before"})
    assert updates == []
    place.show()
    place.show()
    assert shown == [{"text/plain": "before"}] * 2
    place.put({"text/plain": "after"})
    assert updates == [{"text/plain": "after"}] * 2


def test_words_are_escaped_and_commands_look_like_commands():
    words = Words("a <b> line\ntorchrun --standalone launch/train.py")
    assert words.content["text/plain"] == repr(words)
    assert words.content["text/html"] == "a &lt;b&gt; line<br><code>torchrun --standalone launch/train.py</code>"


def test_no_figure_leaves_its_place_empty():
    assert picture(None) == {"text/plain": ""}
    assert picture(Figure(figsize=(1, 1)))["image/png"].startswith("iVBOR")
