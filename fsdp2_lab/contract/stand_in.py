"""What stands in for the world while a script is dry-run or rehearsed; `None` while a script runs in earnest.

Whoever predicts sets it before the script starts; the rank side asks it where it would read text or weights.
"""

from typing import Protocol

from .settings import Settings


class StandIn(Protocol):
    """No text, no weights and two steps, with the shapes and dtypes of the real ones."""

    def open_record(self, settings: Settings | None):
        """What the script gets for its record."""

    def config(self, config):
        """The config to build the model from: as read, or of another depth."""

    def weights(self, config, settings: Settings) -> dict:
        """Names to full tensors whose values mean nothing."""

    def batches(self, config, settings: Settings):
        """Two batches of (inputs, targets), (batch, seq) each, whose values mean nothing."""


playing: StandIn | None = None
