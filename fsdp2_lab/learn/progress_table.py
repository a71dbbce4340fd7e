"""The quiet table of what a reader has answered."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from ..show.labels import CHAPTERS, PROGRESS_ASKED, PROGRESS_COLUMNS, PROGRESS_RIGHT, PROGRESS_STATES
from .progress import Standing
from .verdict import STATE_COLOURS

_STATES = {True: "right", False: "not yet", None: "unanswered"}


@dataclass(frozen=True)
class Progress:
    """A table of exercises by chapter: `standings` maps each exercise's name, as `q05a`, to how it stands."""

    standings: dict[str, Standing]

    def rows(self) -> Iterator[tuple[str, str, dict[str, Standing]]]:
        """For each chapter its number and title, how many are right, and its exercises."""
        for number in sorted({name[1:3] for name in self.standings}):
            of_chapter = {name: standing for name, standing in self.standings.items() if name[1:3] == number}
            right = sum(standing.right is True for standing in of_chapter.values())
            title = f"{number} {CHAPTERS.get(number, '')}".strip()
            yield title, PROGRESS_RIGHT.format(right, len(of_chapter)), of_chapter

    def __repr__(self) -> str:
        rows = [PROGRESS_COLUMNS]
        for title, right, exercises in self.rows():
            rows.append((title, right, " · ".join(f"{name} {_said(exercises[name])}" for name in exercises)))
        width = max(len(title) for title, _, _ in rows)
        return "\n".join(f"{title:<{width}}  {right:>7}  {exercises}" for title, right, exercises in rows)

    def _repr_html_(self) -> str:
        head = "".join(f"<th style='text-align:left'>{column}</th>" for column in PROGRESS_COLUMNS)
        body = "".join(
            f"<tr>{_cell(escape(title))}{_cell(right)}{_cell(' &nbsp; '.join(map(_marked, exercises.items())))}</tr>"
            for title, right, exercises in self.rows()
        )
        return f"<table><tr>{head}</tr>{body}</table>"


def _cell(inner: str) -> str:
    return f"<td style='text-align:left'>{inner}</td>"


def _marked(exercise: tuple[str, Standing]) -> str:
    name, standing = exercise
    colour = STATE_COLOURS[_STATES[standing.right]]
    return f"<span style='color:{colour}'>{name} {escape(_said(standing))}</span>"


def _said(standing: Standing) -> str:
    asked = []
    for wording, number in zip(PROGRESS_ASKED, (standing.tries, standing.hints, standing.solution), strict=True):
        if number:
            asked.append(wording.format(int(number)))
    state = PROGRESS_STATES[_STATES[standing.right]]
    return f"{state} ({', '.join(asked)})" if asked else state
