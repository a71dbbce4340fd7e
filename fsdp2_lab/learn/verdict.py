"""What the page says to an answer."""

from dataclasses import dataclass
from html import escape

from ..show.palette import BLUE, GREEN, GREY, VERMILION

STATE_COLOURS = {"right": GREEN, "not yet": VERMILION, "unanswered": GREY, "note": BLUE}


@dataclass(frozen=True)
class Verdict:
    """One of four kinds, `right`, `not yet`, `unanswered` or `note`, and a sentence or two."""

    kind: str
    text: str

    @property
    def right(self) -> bool:
        return self.kind == "right"

    def __repr__(self) -> str:
        return f"{self.kind}: {self.text}"

    def _repr_html_(self) -> str:
        style = f"border-left:4px solid {STATE_COLOURS[self.kind]};padding-left:8px"
        return f'<div style="{style}"><b>{self.kind}</b>: {escape(self.text)}</div>'
