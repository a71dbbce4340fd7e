"""The planner: a planned job under sliders in a notebook that somebody looks at, as figure and text elsewhere."""

from base64 import b64encode
from functools import partial
from html import escape
from importlib.util import find_spec
from io import BytesIO

from ..contract.errors import UsageError
from ..lab.live.frontend import is_watched
from ..predict.plan import RANKS, RESERVE_GIB
from ..predict.shapes import known_models
from . import labels
from .planned_job import PlannedJob, static_twin

GIB_PER_GPU = (16, 24, 32, 40, 48, 64, 80, 96, 141, 192, 288)
SEQUENCES = tuple(2**power for power in range(7, 18))  # 128 … 131,072 tokens
MOST_BATCH = 128


def planner(
    model: str = PlannedJob.model,
    ranks: int = PlannedJob.ranks,
    gib_per_gpu: float = PlannedJob.gib_per_gpu,
    batch: int = PlannedJob.batch,
    seq: int = PlannedJob.seq,
    checkpointing: bool = PlannedJob.checkpointing,
    reshard: bool = PlannedJob.reshard,
    reserve_gib: float = RESERVE_GIB,
) -> "Planner":
    """Controls for a job of launch/train.py on GPUs, and beside them what it needs, what fits, and its command.

    `model` is a known name or a Hugging Face folder with a config, `batch` sequences per GPU, `reserve_gib` what of
    a GPU is kept for CUDA's context, NCCL and fragmentation. Raises `UsageError` for a job that cannot be.
    """
    job = PlannedJob(model, ranks, gib_per_gpu, batch, seq, checkpointing, reshard, reserve_gib)
    job.fit  # noqa: B018 — says what is wrong here, before there are controls
    return Planner(job)


class Planner:
    """A planned job as a cell shows it: `job` is the state, `box` its controls, made when they are first looked at."""

    def __init__(self, job: PlannedJob):
        self.job, self._controls = job, None

    @property
    def controls(self) -> "Controls":
        """The widgets by name. Raises `UsageError` where ipywidgets is missing."""
        if self._controls is None:
            self._controls = Controls(self.job)
        return self._controls

    @property
    def box(self):
        """The ipywidgets box that holds them."""
        return self.controls.box

    def _ipython_display_(self) -> None:
        from IPython import get_ipython
        from IPython.display import display

        kernel = getattr(get_ipython(), "kernel", None)
        figure, text = static_twin(self.job)
        if kernel is not None and is_watched(kernel) and find_spec("ipywidgets"):
            # The picture is for pages that show this output later, without a kernel behind the controls.
            view = self.box._repr_mimebundle_()
            picture = {} if figure is None else {"image/png": b64encode(_png(figure)).decode()}
            display(view | {"text/plain": text} | picture, raw=True)
            return
        if figure is not None:
            display(figure)
        display(_Words(text))

    def __repr__(self) -> str:
        return self.job.text


class Controls:
    """Widgets around one planned job: every control changes one setting, every change shows all answers again."""

    def __init__(self, job: PlannedJob):
        self.job, widgets = job, _ipywidgets()
        wide = {"style": {"description_width": "10em"}, "layout": {"width": "27em"}}
        known = known_models()
        is_known = job.model in known

        def slider(name: str, options) -> widgets.SelectionSlider:
            value = getattr(job, name)
            choices = [(f"{option:,}", option) for option in sorted({*options, value})]
            return widgets.SelectionSlider(options=choices, value=value, description=labels.PLAN_CONTROLS[name], **wide)

        def tick(name: str) -> widgets.Checkbox:
            text = labels.PLAN_CONTROLS[name]
            return widgets.Checkbox(value=getattr(job, name), description=text, **wide)

        self.model = widgets.Dropdown(
            options=known, value=job.model if is_known else None, description=labels.PLAN_MODEL, **wide
        )
        self.folder = widgets.Text(
            value="" if is_known else job.model,
            placeholder=labels.PLAN_NO_FOLDER,
            description=labels.PLAN_FOLDER,
            continuous_update=False,  # half a path is no folder
            **wide,
        )
        self.settings = {
            "ranks": slider("ranks", RANKS),
            "gib_per_gpu": slider("gib_per_gpu", GIB_PER_GPU),
            "checkpointing": tick("checkpointing"),
            "batch": slider("batch", range(1, MOST_BATCH + 1)),
            "seq": slider("seq", SEQUENCES),
            "reshard": tick("reshard"),
        }
        self.button = widgets.Button(description=labels.PLAN_BUTTON)
        self.image = widgets.Image(format="png", layout={"width": "814px"})
        self.words = widgets.HTML()
        controls = list(self.settings.values())
        columns = [widgets.VBox([self.model, *controls[:3]]), widgets.VBox([self.folder, *controls[3:]])]
        self.box = widgets.VBox([widgets.HBox(columns), self.image, self.words, self.button])

        self.model.observe(self._choose_known, "value")
        self.folder.observe(self._choose_folder, "value")
        for name, control in self.settings.items():
            control.observe(partial(self._change, name), "value")
        self.button.on_click(self._press)
        job.watchers.append(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the job as it is now, the words first: they are there before the figure is drawn."""
        self.words.value = _html(self.job.text)
        figure = self.job.figure()
        self.image.layout.display = "none" if figure is None else None
        if figure is not None:
            self.image.value = _png(figure)

    def _choose_known(self, change) -> None:
        if change["new"] is not None:
            self.job.change("model", change["new"])
            self.folder.value = ""

    def _choose_folder(self, change) -> None:
        if folder := change["new"].strip():
            self.job.change("model", folder)
            self.model.value = None

    def _change(self, name: str, change) -> None:
        self.job.change(name, change["new"])

    def _press(self, _button) -> None:
        self.button.disabled, self.button.description = True, labels.PLAN_BUSY
        try:
            self.job.dry_run()
        finally:
            self.button.disabled, self.button.description = False, labels.PLAN_BUTTON


class _Words:
    """Lines of text, the last of them a command, as HTML and plain."""

    def __init__(self, text: str):
        self._text = text

    def _repr_html_(self) -> str:
        return _html(self._text)

    def __repr__(self) -> str:
        return self._text


def _html(text: str) -> str:
    lines = [escape(line) for line in text.splitlines()]
    return "<br>".join(f"<code>{line}</code>" if line.startswith("torchrun ") else line for line in lines)


def _png(figure) -> bytes:
    file = BytesIO()
    figure.savefig(file, format="png", dpi=figure.dpi)
    return file.getvalue()


def _ipywidgets():
    try:
        import ipywidgets
    except ImportError:
        raise UsageError("The planner's controls need ipywidgets: `pip install ipywidgets`.") from None
    return ipywidgets
