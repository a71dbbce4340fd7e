"""Checkpointing's trade under sliders in a notebook that somebody looks at, as figure and words elsewhere."""

from functools import partial

from . import labels
from .places import Place, Words, find_ipywidgets, picture, show_live_or_static
from .traded_job import TradedJob

MODELS = ("llama-3.2-1b", "llama-2-7b", "llama-3.1-8b", "llama-3.1-70b")
SEQUENCES = tuple(2**power for power in range(9, 16))  # 512 … 32,768 tokens
MOST_BATCH = 16


def checkpointing_trade(
    model: str = TradedJob.model,
    ranks: int = TradedJob.ranks,
    batch: int = TradedJob.batch,
    seq: int = TradedJob.seq,
    blocks: int | None = None,
) -> "CheckpointingTrade":
    """Sliders for how many of a model's blocks are checkpointed: bytes for backward, peak and work, all predicted.

    `model` is a known name or a Hugging Face folder with a config, `batch` sequences per GPU of `ranks` GPUs,
    `blocks` how many of the first blocks are checkpointed, all unless given. Raises `UsageError` for a job that
    cannot be.
    """
    job = TradedJob(model, ranks, batch, seq, blocks)
    job.found  # noqa: B018 — says what is wrong here, before there are controls
    return CheckpointingTrade(job)


class CheckpointingTrade:
    """A job as a cell shows it: `job` is the state, `controls` its widgets, made when they are first looked at."""

    def __init__(self, job: TradedJob):
        self.job, self._controls = job, None

    @property
    def controls(self) -> "TradeControls":
        """The widgets by name. Raises `UsageError` where ipywidgets is missing."""
        if self._controls is None:
            self._controls = TradeControls(self.job)
        return self._controls

    def _ipython_display_(self) -> None:
        show_live_or_static(lambda: self.controls, lambda: (self.job.figure(), self.job.text))

    def __repr__(self) -> str:
        return self.job.text


class TradeControls:
    """Widgets around one job: every one changes one setting, every change shows figure and words again."""

    def __init__(self, job: TradedJob):
        self.job, widgets = job, find_ipywidgets()
        wide = {"style": {"description_width": "11em"}, "layout": {"width": "30em"}}

        def slider(name: str, options) -> widgets.SelectionSlider:
            value = getattr(job, name)
            choices = [(f"{option:,}", option) for option in sorted({*options, value})]
            return widgets.SelectionSlider(
                options=choices, value=value, description=labels.TRADE_CONTROLS[name], **wide
            )

        models = [*MODELS, *({job.model} - set(MODELS))]
        self.model = widgets.Dropdown(
            options=models, value=job.model, description=labels.TRADE_CONTROLS["model"], **wide
        )
        self.batch = slider("batch", range(1, MOST_BATCH + 1))
        self.seq = slider("seq", SEQUENCES)
        self.blocks = widgets.IntSlider(
            value=self._blocks, min=0, max=job.layers, description=labels.TRADE_CONTROLS["blocks"], **wide
        )
        self.picture, self.words = Place(), Place()
        self.box = widgets.VBox([self.model, self.batch, self.seq, self.blocks])
        for name in ("model", "batch", "seq", "blocks"):
            getattr(self, name).observe(partial(self._change, name), "value")
        job.watchers.append(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the job as it is now, the words first: they are there before the figure is drawn."""
        self.blocks.max = max(self.job.layers, self.blocks.value)  # no moment with a value above the most
        self.blocks.value = self._blocks
        self.blocks.max = self.job.layers
        self.words.put(Words(self.job.text).content)
        self.picture.put(picture(self.job.figure()))

    @property
    def _blocks(self) -> int:
        return self.job.layers if self.job.blocks is None else self.job.blocks

    def _change(self, name: str, change) -> None:
        if name == "blocks" and change["new"] == self._blocks:
            return  # it was moved by us
        self.job.change(name, change["new"])
