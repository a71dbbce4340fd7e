"""Progress in a notebook: one display, live while the run goes on, plain HTML that keeps once it has ended."""

import time
from html import escape

from ...contract.record import LaunchRecord
from ...contract.units import format_duration
from .kept_output import kept_output
from .progress import Progress, opening, starting
from .standing import Follower, Standing
from .stop_button import StopButton

_REFRESH_SECONDS = 0.35
_UNATTENDED_SECONDS = 2.0  # where no button can be shown there may be no reader either
_STOP_HINT = "stop: interrupt the kernel"


class Display(Progress):
    """A cell's output: what runs, the stages reached, a bar, numbers and a Stop button; static at the end."""

    def __init__(self):
        self._stop, self._stop_shown, self._handle = None, False, None

    def start(self, launch, run_dir):
        from IPython import get_ipython
        from IPython.display import display

        self._launch, self._follower = launch, Follower(run_dir)
        self._began = self._shown = time.monotonic()
        self._stop = StopButton(get_ipython().kernel)
        self._handle = display(self._draw(None), display_id=True)

    def update(self):
        now = time.monotonic()
        if now - self._shown < (_REFRESH_SECONDS if self._stop.expected else _UNATTENDED_SECONDS):
            return
        self._shown = now
        drawn = self._draw(self._follower.look())
        if self._stop_shown:
            self._stop.write(drawn.html)
        elif self._stop.works():
            self._stop_shown = True
            self._handle.update(_Shown(drawn.html, drawn.plain, self._stop.view(drawn.html)))
        else:
            self._handle.update(drawn)

    def finish(self, run):
        if self._stop:
            self._stop.close()
        if self._handle:  # an interrupt may come before it
            self._handle.update(_Shown(*kept_output(run)))

    def _draw(self, standing: Standing | None) -> "_Shown":
        ways = [] if self._stop_shown else [_STOP_HINT]
        ways = [format_duration(time.monotonic() - self._began), *ways]
        return _Shown(*_running(self._launch, standing, ways))


class _Shown:
    """HTML and its plain twin, and the view of a widget in place of both where there is one."""

    def __init__(self, html: str, plain: str, view: dict | None = None):
        self.html, self.plain, self._view = html, plain, view or {}

    def _repr_mimebundle_(self, **_kwargs) -> dict:
        return {"text/plain": self.plain, "text/html": self.html} | self._view

    def __repr__(self) -> str:
        return self.plain


def _running(launch: LaunchRecord, standing: Standing | None, ways: list[str]) -> tuple[str, str]:
    """HTML and text of a run under way: `ways` are what stands last, seconds so far and how to stop."""
    marks = [starting(launch)]
    if standing and (standing.done or standing.current):
        marks = [f"✓ {name}" for name in standing.done] + ([f"▸ {standing.current}"] if standing.current else [])
    numbers = [*(standing.numbers if standing else []), *ways]
    bar = ""
    if standing and standing.share is not None:
        bar = f'<progress max="1" value="{standing.share:.3f}" style="width: 16em"></progress> '
    lines = [opening(launch), "  ".join(marks), " · ".join(numbers)]
    head, stages, foot = map(escape, lines)
    return f"<small>{head}</small><br>{stages}<br>{bar}<small>{foot}</small>", "\n".join(lines)
