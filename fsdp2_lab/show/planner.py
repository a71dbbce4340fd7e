"""The planner: a planned job under sliders in a notebook that somebody looks at, as figure and text elsewhere."""

from functools import partial

from ..predict.plan import RANKS, RESERVE_GIB
from ..predict.shapes import known_models
from . import labels
from .places import Place, Words, find_ipywidgets, picture, show_live_or_static
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
        show_live_or_static(lambda: self.controls, lambda: static_twin(self.job))

    def __repr__(self) -> str:
        return self.job.text


class Controls:
    """Widgets around one planned job: every control changes one setting, every change shows all answers again."""

    def __init__(self, job: PlannedJob):
        self.job, widgets = job, find_ipywidgets()
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
        self.picture, self.words = Place(), Place()
        controls = list(self.settings.values())
        columns = [widgets.VBox([self.model, *controls[:3]]), widgets.VBox([self.folder, *controls[3:]])]
        self.box = widgets.VBox([widgets.HBox(columns), self.button])

        self.model.observe(self._choose_known, "value")
        self.folder.observe(self._choose_folder, "value")
        for name, control in self.settings.items():
            control.observe(partial(self._change, name), "value")
        self.button.on_click(self._press)
        job.watchers.append(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the job as it is now, the words first: they are there before the figure is drawn."""
        self.words.put(Words(self.job.text).content)
        self.picture.put(picture(self.job.figure()))

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
