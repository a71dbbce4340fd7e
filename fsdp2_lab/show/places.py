"""What a cell shows beside its controls: places that follow them, and that are saved with the notebook."""

from base64 import b64encode
from collections.abc import Callable
from html import escape
from importlib.util import find_spec
from io import BytesIO

from matplotlib.figure import Figure

from ..contract.errors import UsageError
from ..lab.live.frontend import is_watched
from . import labels

Bundle = dict[str, str]  # MIME type → content


class Place:
    """An output of a cell that is shown again where it stands whenever its content changes.

    A file keeps the last content: who opens it without a kernel, where controls are an empty box, still sees it.
    """

    def __init__(self):
        self.content: Bundle = {"text/plain": ""}
        self._shown = []

    def put(self, content: Bundle) -> None:
        """Change the content, wherever it is shown."""
        self.content = content
        for handle in self._shown:
            handle.update(content, raw=True)

    def show(self) -> None:
        """Show it in the cell that runs."""
        from IPython.display import display

        if handle := display(self.content, raw=True, display_id=True):
            self._shown.append(handle)


class Words:
    """Lines of text as HTML and plain; those that begin with `torchrun ` are commands."""

    def __init__(self, text: str):
        self._text = text

    @property
    def content(self) -> Bundle:
        return {"text/plain": self._text, "text/html": self._repr_html_()}

    def _repr_html_(self) -> str:
        lines = [escape(line) for line in self._text.splitlines()]
        return "<br>".join(f"<code>{line}</code>" if line.startswith("torchrun ") else line for line in lines)

    def __repr__(self) -> str:
        return self._text


def picture(figure: Figure | None) -> Bundle:
    """A figure as a place's content; empty where there is none."""
    if figure is None:
        return {"text/plain": ""}
    file = BytesIO()
    figure.savefig(file, format="png", dpi=figure.dpi)
    return {"text/plain": labels.FIGURE, "image/png": b64encode(file.getvalue()).decode()}


def show_live_or_static(make_controls: Callable, make_twin: Callable[[], tuple[Figure | None, str]]) -> None:
    """Controls and their places to who watches a kernel; the figure and the words anywhere else.

    `make_controls` returns what has a `box` of widgets, a `picture` and `words`; `make_twin` a figure and a text.
    """
    from IPython import get_ipython
    from IPython.display import display

    kernel = getattr(get_ipython(), "kernel", None)
    if kernel is not None and is_watched(kernel) and find_spec("ipywidgets"):
        controls = make_controls()
        display(controls.box._repr_mimebundle_() | {"text/plain": labels.CONTROLS}, raw=True)
        controls.picture.show()
        controls.words.show()
        return
    figure, text = make_twin()
    if figure is not None:
        display(figure)
    display(Words(text))


def find_ipywidgets():
    """The module. Raises `UsageError` where it is missing."""
    try:
        import ipywidgets
    except ImportError:
        raise UsageError("These controls need ipywidgets: `pip install ipywidgets`.") from None
    return ipywidgets
