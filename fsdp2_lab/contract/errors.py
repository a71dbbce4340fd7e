"""Errors a person reads: the message is the whole story, so no traceback of ours goes with it."""

from .secrets import redact


class LabError(Exception):
    """Anything that went wrong and that a person should read about; our own frames and all secrets are left out."""

    def __init__(self, message: str = ""):
        super().__init__(redact(str(message)))

    def _render_traceback_(self) -> list[str]:
        # IPython calls this hook instead of printing the frames between the cell and the raise.
        return [f"{type(self).__name__}: {self}"]


class UsageError(LabError):
    """A mistake the reader can mend: one sentence naming the value, what was expected, what to do.

    Raised before any rank starts where it can be known.
    """


class StageSyntaxError(UsageError):
    """A stage cell that is no Python; nothing was written."""

    def __init__(self, error: SyntaxError):
        line = (error.text or "").rstrip("\n")
        marker = " " * max(0, (error.offset or 1) - 1) + "^"
        super().__init__(f"{error.msg} ({error.filename}, line {error.lineno})\n    {line}\n    {marker}")


class StageFailed(LabError):
    """A launch that did not end well.

    `run` is the `Run` with all that was recorded up to then; `run.error` has rank, type, message and
    traceback of the rank that failed first.
    """

    def __init__(self, message: str, run):
        super().__init__(message)
        self.run = run
        self.comparison = None  # what was found in other ways, where the launch was one of several


class StageTimeout(StageFailed):
    """A launch that its deadline ended."""


class StageInterrupted(KeyboardInterrupt):
    """A launch that Ctrl-C or the notebook's stop button ended; `run` has what was recorded up to then."""

    def __init__(self, run):
        super().__init__()
        self.run = run

    def __str__(self) -> str:
        return f"every rank was ended: {self.run.outcome}"

    def _render_traceback_(self) -> list[str]:
        return [f"StageInterrupted: {self}"]


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type where it has none: libraries' messages run to pages."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
