"""What several chapters' exercises read from a run."""

from ..contract.units import MIB
from ..lab.runs import Run


def parameters(run: Run) -> int:
    """The model's number of parameters, as the stage `meta` noted it."""
    return run.noted("parameters")[0]


def mib_per_parameter(run: Run, bytes_each: float) -> float:
    return bytes_each * parameters(run) / MIB
