"""Run a script and kill one rank, or fill its disk, at a chosen moment of a save.

struck_while_saving.py SCRIPT MOMENT RANK SAVE …

MOMENT is of the SAVE-th save, from 1: `opened` (a file of shards is there, empty), `written` (it is there and not
yet synced), `complete` (all but the renaming is done), `renamed`, `pruning` (of an older state), or `full`.
"""

import os
import resource
import runpy
import shutil
import signal
import sys

import safetensors.torch

script, moment, rank, which, *argv = sys.argv[1:]
mine = os.environ["RANK"] == rank
seen = 0


def at(name: str, module, function: str, before: bool = True):
    """Wrap a function so that its `which`-th call is the moment."""
    original = getattr(module, function)

    def wrapped(*args, **kwargs):
        global seen
        seen += name == moment
        due = mine and name == moment and seen == int(which)
        if due and before:
            _strike()
        result = original(*args, **kwargs)
        if due:
            _strike()
        return result

    if name == moment:
        setattr(module, function, wrapped)


def _strike():
    if moment == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # the next longer file cannot be written
    else:
        os.kill(os.getpid(), signal.SIGKILL)


at("opened", safetensors.torch, "save")
at("full", safetensors.torch, "save", before=False)
at("written", os, "fsync")
at("complete", os, "rename")
at("renamed", os, "rename", before=False)
at("pruning", shutil, "rmtree")
sys.argv = [script, *argv]
runpy.run_path(script, run_name="__main__")
