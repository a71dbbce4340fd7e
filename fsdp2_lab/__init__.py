"""FSDP2 Lab: notebook cells become torchrun scripts, and every rank's memory and timing comes back."""

from importlib import import_module

_HOMES = {
    "doctor": "lab.doctor",
    "launch": "lab.launcher",
    "dryrun": "predict.dryrun",
    "rehearse": "predict.rehearse",
    "available_ranks": "lab.machine",
    "checkpoint": "lab.checkpoints",
    "account": "predict.account",
    "fit": "predict.plan",
    "smallest_ranks": "predict.plan",
    "largest_batch": "predict.plan",
    "compare": "show.comparison",
    "Run": "lab.runs",
    "runs": "lab.runs",
    "LabError": "contract.errors",
    "StageFailed": "contract.errors",
    "StageInterrupted": "contract.errors",
    "StageTimeout": "contract.errors",
    "UsageError": "contract.errors",
}
__all__ = ["load_ipython_extension", *_HOMES]


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def load_ipython_extension(ipython) -> None:
    """`%load_ext fsdp2_lab`: register `%chapter` and `%%stage`, and have ranks warmed up in the background."""
    from .lab import warm
    from .magics import LabMagics

    warm.prepare()

    ipython.register_magics(LabMagics)
