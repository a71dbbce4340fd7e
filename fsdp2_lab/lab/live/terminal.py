"""Progress in a terminal: stages, step, loss, peak, speed and time left, replaced in place on stderr."""

import sys
import time
from contextlib import suppress

from ...contract.units import format_duration
from .progress import Progress, closing, opening, starting
from .standing import Follower, Standing

_BAR_CELLS = 30
_REST_CELLS = 16  # for the spinner and the time, beside the stages


class Terminal(Progress):
    """A live display by `rich`, which takes care of colour, width and the cursor."""

    def __init__(self):
        self._live = None

    def start(self, launch, run_dir):
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        self._launch, self._follower = launch, Follower(run_dir)
        self._began, self._spinner = time.monotonic(), Spinner("dots")
        console = Console(file=sys.stderr)
        # No thread of its own: the launcher calls often enough, and may fork.
        self._live = Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        console.print(opening(launch), style="dim", markup=False, highlight=False, soft_wrap=True)
        self._live.start()
        self.update()

    def update(self):
        seconds = time.monotonic() - self._began
        with suppress(OSError, ValueError):  # a closed terminal ends no launch
            self._live.update(self._draw(self._follower.look(), seconds), refresh=True)

    def finish(self, run):
        with suppress(OSError, ValueError):
            if self._live:  # an interrupt may come before it
                self._live.stop()
            print(closing(run), file=sys.stderr, flush=True)

    def _draw(self, standing: Standing | None, seconds: float):
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        width = self._live.console.width
        stages = _stages(standing, starting(self._launch), width)
        stages.append(f"  {format_duration(seconds)}", style="dim")
        first = Table.grid(padding=(0, 1))
        first.add_row(self._spinner, stages)
        if standing is None or not standing.numbers:
            return first
        numbers = Text(" · ".join(standing.numbers), overflow="ellipsis", no_wrap=True)
        if standing.share is None:
            return Group(first, numbers)
        bar = ProgressBar(total=1.0, completed=standing.share, width=min(_BAR_CELLS, width))
        second = Table.grid(padding=(0, 1))
        if _BAR_CELLS + 1 + len(numbers) > width:
            second.add_row(bar)
            return Group(first, second, numbers)
        second.add_row(bar, numbers)
        return Group(first, second)


def _stages(standing: Standing | None, before: str, width: int):
    from rich.text import Text

    if standing is None or not (standing.done or standing.current):
        return Text(before, overflow="ellipsis", no_wrap=True)
    done = "".join(f"✓ {name}  " for name in standing.done)
    current = f"▸ {standing.current}" if standing.current else ""
    if len(done) + len(current) + _REST_CELLS > width:
        done = f"✓ {len(standing.done)} stages  "
    return Text.assemble((done, "green"), (current, "bold"), overflow="ellipsis", no_wrap=True)
