"""Errors a person reads: the message is the whole story, so no traceback of ours goes with it."""


class LabError(Exception):
    """A mistake the reader can mend: one sentence naming the value, what was expected, what to do."""

    def _render_traceback_(self) -> list[str]:
        # IPython calls this hook instead of printing the frames between the cell and the raise.
        return [f"{type(self).__name__}: {self}"]


class UsageError(LabError):
    """A setting, name or folder that cannot be used; raised before any rank starts where it can be known."""


class StageFailed(LabError):
    """A launch that did not end well.

    `run` is the `Run` with all that was recorded up to then; `run.error` has rank, type, message and
    traceback of the rank that failed first.
    """

    def __init__(self, message: str, run):
        super().__init__(message)
        self.run = run


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
