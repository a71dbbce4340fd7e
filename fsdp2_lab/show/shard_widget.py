"""The shards of one tensor under sliders: drag the ranks and the rows, and see who gets which."""

from functools import partial

from . import labels
from .places import Place, Words, find_ipywidgets, picture, show_live_or_static
from .row_shards import RowShards

MOST = {"ranks": 16, "rows": 64}  # where a block can still be seen


def shard_widget(
    ranks: int = RowShards.ranks, rows: int = RowShards.rows, columns: int = RowShards.columns
) -> "ShardWidget":
    """Sliders for the ranks and for the rows of a float32 tensor, and beside them each rank's rows and the padding.

    Raises `UsageError` for a number that is out of range.
    """
    return ShardWidget(RowShards(ranks, rows, columns))


class ShardWidget:
    """A sharded tensor as a cell shows it: `shards` is the state, `controls` the widgets, made when first looked at."""

    def __init__(self, shards: RowShards):
        self.shards, self._controls = shards, None

    @property
    def controls(self) -> "Controls":
        """The widgets by name. Raises `UsageError` where ipywidgets is missing."""
        if self._controls is None:
            self._controls = Controls(self.shards)
        return self._controls

    def _ipython_display_(self) -> None:
        show_live_or_static(lambda: self.controls, lambda: (self.shards.figure(), self.shards.text))

    def __repr__(self) -> str:
        return self.shards.text


class Controls:
    """Widgets around one sharded tensor: every slider changes one number, every change shows all answers again."""

    def __init__(self, shards: RowShards):
        self.shards, widgets = shards, find_ipywidgets()
        self.sliders = {}
        for name, most in MOST.items():
            value = getattr(shards, name)
            self.sliders[name] = widgets.IntSlider(value, 1, max(most, value), description=labels.SHARD_CONTROLS[name])
        self.picture, self.words = Place(), Place()
        self.box = widgets.HBox(list(self.sliders.values()))
        for name, slider in self.sliders.items():
            slider.observe(partial(self._change, name), "value")
        shards.watchers.append(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the tensor as it is cut now."""
        self.words.put(Words(self.shards.text).content)
        self.picture.put(picture(self.shards.figure()))

    def _change(self, name: str, change) -> None:
        self.shards.change(name, change["new"])
