"""The CUDA caching allocator's history, for PyTorch's memory viewer: begun and exported where a launch asks for it.

The file is a pickle, because the viewer takes no other; nothing of ours reads one.
"""

import os
from pathlib import Path

import torch

from ..contract.workspace import SNAPSHOT_VARIABLE

MOST_EVENTS = 200_000  # the latest are kept

_begun = False


def begin_if_asked() -> None:
    """Have the allocator remember what it gives out, from now on, if the launch asked for it; once is enough."""
    global _begun
    if not _begun and os.environ.get(SNAPSHOT_VARIABLE) == "1":
        torch.cuda.memory._record_memory_history(max_entries=MOST_EVENTS)
        _begun = True


def export(path: Path) -> None:
    """Write what the allocator remembers, if it was asked to. Raises `OSError` or `RuntimeError` where it cannot."""
    global _begun
    if _begun:
        _begun = False
        torch.cuda.memory._dump_snapshot(str(path))
        torch.cuda.memory._record_memory_history(enabled=None)
