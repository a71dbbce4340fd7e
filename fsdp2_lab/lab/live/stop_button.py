"""A Stop button for a cell that blocks the kernel: shown only where a press is known to arrive."""

import signal
import threading

from .frontend import is_watched

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

_TOOLTIP = "End every rank, as interrupting the kernel does"

# The frontend hears of its subshell a little after the kernel does. An answer sent too early would go to the busy
# thread, and the frontend would send no other before that one is read.
_SIGHTINGS = 3


class StopButton:
    """HTML with a Stop button below it, which does what the notebook's own stop button does.

    While a cell runs, the kernel hears of a press only where frontend and kernel have subshells, threads beside
    the cell's (JupyterLab 4.4, ipykernel 7). So the widgets are made first; once there is a subshell the frontend is
    asked to copy the tooltip onto the button, and an answer that arrives while the cell runs has taken the way of a
    press. Where none arrives no button is shown, and the reader is told to interrupt the kernel.
    """

    def __init__(self, kernel):
        self._kernel, self._lock, self._over = kernel, threading.Lock(), False
        self._widgets, self._sightings = [], 0
        # Where nobody watches, the widgets' state would be saved in the notebook.
        has_subshells = getattr(kernel, "shell_channel_thread", None) is not None
        interactive = has_subshells and is_watched(kernel)
        if interactive and threading.current_thread() is threading.main_thread():  # the one that a signal interrupts
            self._make()

    def _make(self) -> None:
        try:
            from ipywidgets import HTML, Button, VBox, jsdlink
        except ImportError:
            return
        self._html = HTML(placeholder="")
        self._button = Button(description="Stop", icon="stop", tooltip="")
        self._box = VBox([self._html, self._button])
        self._button.on_click(self._press)
        # ipykernel 7.4 hands a press to the thread that made the button, which is busy, unless this is missing:
        # then it goes where the frontend sent it.
        self._button.comm._reply_subshell_for = None
        link = jsdlink((self._html, "placeholder"), (self._button, "tooltip"))
        widgets = [self._box, self._html, self._button]
        self._widgets = [link, *widgets, *(w.layout for w in widgets), self._html.style, self._button.style]

    @property
    def expected(self) -> bool:
        """Whether the frontend is one that a person looks at, as far as can be told."""
        return bool(self._widgets)

    def works(self) -> bool:
        """Whether a message from the frontend came through while the cell was running; asks for one on the way."""
        if not self._widgets:
            return False
        if self._sightings < _SIGHTINGS and self._kernel.shell_channel_thread.manager.list_subshell():
            self._sightings += 1
            if self._sightings == _SIGHTINGS:
                self._html.placeholder = _TOOLTIP
        return self._button.tooltip == _TOOLTIP

    def view(self, html: str) -> dict:
        """The display data that shows the HTML and the button; `write` replaces the HTML in it."""
        self.write(html)
        return {WIDGET_VIEW: {"version_major": 2, "version_minor": 0, "model_id": self._box.model_id}}

    def write(self, html: str) -> None:
        self._html.value = html

    def close(self) -> None:
        """Take the widgets away; from here on a press that is under way does nothing."""
        with self._lock:
            self._over = True
        for widget in self._widgets:
            widget.close()
        self._widgets = []

    def _press(self, _button) -> None:
        with self._lock:  # a signal sent after the end would stop the next cell
            if not self._over:
                self._button.disabled, self._button.description = True, "Stopping"
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
