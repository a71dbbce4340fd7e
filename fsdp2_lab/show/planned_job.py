"""A job that is being planned: what was chosen, what follows from it, and what the dry run said."""

import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from matplotlib.figure import Figure

from ..contract.errors import UsageError
from ..contract.settings import to_argv
from ..contract.units import format_bytes, format_ranks
from ..predict.dryrun import dryrun
from ..predict.plan import RESERVE_GIB, Answer, Budget, fit, largest_batch, peaks_by_ranks, smallest_ranks
from ..predict.prediction import Prediction
from . import labels
from .plan_figures import plan

GPUS_PER_NODE = 8
_CHOSEN = ("model", "ranks", "gib_per_gpu", "batch", "seq", "checkpointing", "reshard")
_SETTINGS = ("batch", "seq", "checkpointing", "reshard")


@dataclass
class PlannedJob:
    """One job of launch/train.py on GPUs; `batch` is each rank's, `reserve_gib` what a GPU keeps for other things.

    `change` and `dry_run` are what the planner's controls call; `watchers` are called after each. Answers and the
    command raise `UsageError` where the job cannot be; `lines` says it then.
    """

    model: str = "llama-2-7b"
    ranks: int = 4
    gib_per_gpu: float = 40
    batch: int = 1
    seq: int = 2048
    checkpointing: bool = True
    reshard: bool = True
    reserve_gib: float = RESERVE_GIB
    confirmed: Prediction | None = field(default=None, init=False)
    dry_run_line: str = field(default=labels.PLAN_NOT_DRY_RUN, init=False)
    watchers: list[Callable[[], None]] = field(default_factory=list, init=False, repr=False)

    def change(self, name: str, value) -> None:
        """Choose another value of one setting; what the dry run said was of another job, and goes."""
        if name not in _CHOSEN:
            raise UsageError(f"{name!r:.40} is not chosen here: expected one of {', '.join(_CHOSEN)}.")
        setattr(self, name, value)
        self.confirmed, self.dry_run_line = None, labels.PLAN_NOT_DRY_RUN
        self._tell()

    def dry_run(self) -> Prediction | None:
        """Play the script as one rank of this job, some seconds, and keep the answer; a sentence where it fails."""
        self.confirmed, self.dry_run_line = None, labels.PLAN_DRY_RUNNING.format(format_ranks(self.ranks))
        self._tell()
        try:
            self.confirmed = dryrun("train", self.ranks, device="cuda", model=self.model, **self._settings)
            self.dry_run_line = self._told()
        except UsageError as error:
            self.dry_run_line = labels.PLAN_NO_DRY_RUN.format(error)
        except BaseException:  # interrupted: it runs no more
            self.dry_run_line = labels.PLAN_NOT_DRY_RUN
            raise
        finally:
            self._tell()
        return self.confirmed

    @property
    def fit(self) -> Answer:
        """Whether it fits."""
        return fit(self.model, self.ranks, self.gib_per_gpu, self.reserve_gib, **self._settings)

    @property
    def smallest_ranks(self) -> Answer:
        """The fewest ranks with which it would."""
        return smallest_ranks(self.model, self.gib_per_gpu, self.reserve_gib, **self._settings)

    @property
    def largest_batch(self) -> Answer:
        """The largest batch per rank with which it would."""
        return largest_batch(self.model, self.ranks, self.gib_per_gpu, self.reserve_gib, **self._settings)

    @property
    def command(self) -> str:
        """What a person would type: on this machine up to 8 GPUs; with more, the same line on every node of 8."""
        ranks = self.fit.account.ranks
        per_node = max(count for count in range(1, GPUS_PER_NODE + 1) if ranks % count == 0)
        where = f"--standalone --nproc_per_node={ranks}"
        if ranks > GPUS_PER_NODE:
            where = (
                f"--nnodes={ranks // per_node} --nproc_per_node={per_node} "
                "--node_rank=$NODE_RANK --master_addr=$MASTER_ADDR --master_port=29500"
            )
        argv = to_argv({"model": self.model, **self._settings})
        return f"torchrun {where} launch/train.py {shlex.join(argv)}"

    def lines(self) -> list[str]:
        """The answers in words, a sentence each, or the one sentence that says why there are none."""
        try:
            answers = [self.fit, self.smallest_ranks, self.largest_batch]
            budget = labels.PLAN_BUDGET.format(self.gib_per_gpu, self.reserve_gib)
            return [self._heading, *map(str, answers), budget]
        except UsageError as error:
            return [str(error)]

    @property
    def text(self) -> str:
        """All that there is to say: the answers, the dry run, and the command as the last line."""
        lines = [*self.lines(), self.dry_run_line]
        with suppress(UsageError):
            lines.append(self.command)
        return "\n".join(lines)

    def figure(self) -> Figure | None:
        """The job's terms and the curve over N; `None` where the job cannot be."""
        try:
            by_ranks = peaks_by_ranks(self.model, **self._settings)
            budget = Budget(self.gib_per_gpu, self.reserve_gib)
            return plan(self.fit.account, by_ranks, budget, self.confirmed and self.confirmed.peak_bytes)
        except UsageError:
            return None

    @property
    def _heading(self) -> str:
        switches = [f"{labels.PLAN_CONTROLS[name]} {'on' if getattr(self, name) else 'off'}" for name in _SETTINGS[2:]]
        sizes = labels.PLAN_SIZES.format(format_ranks(self.ranks), f"{self.batch:,}", f"{self.seq:,}")
        return ", ".join([labels.PLAN_PREDICTED, self.model, sizes, *switches])

    def _told(self) -> str:
        found, seconds = self.confirmed.peak_bytes, self.confirmed.seconds
        line = labels.PLAN_DRY_RUN.format(how=self.confirmed.how, found=format_bytes(found), seconds=seconds)
        with suppress(UsageError):  # the dry run takes models that the closed form does not
            predicted = self.fit.account.peak_bytes
            line += " " + labels.PLAN_AGAINST.format(predicted=format_bytes(predicted), error=predicted / found - 1)
        return line

    @property
    def _settings(self) -> dict:
        return {name: getattr(self, name) for name in _SETTINGS}

    def _tell(self) -> None:
        for watcher in self.watchers:
            watcher()


def static_twin(job: PlannedJob) -> tuple[Figure | None, str]:
    """What the planner shows where there are no widgets: the same figure and the same words."""
    return job.figure(), job.text
