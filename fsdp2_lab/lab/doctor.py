"""The check-up: Python, packages, devices and memory against what the notebooks need."""

import platform
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version

import psutil
from packaging.requirements import Requirement

from ..contract.units import format_bytes
from .machine import machine

PYTHON_FROM, PYTHON_BELOW = (3, 11), (3, 14)
_NEEDED_BYTES = 4 * 2**30  # two to four ranks, a third of a GiB each for imports alone, and a notebook


@dataclass
class Check:
    """One line of the report: what was found, what is expected, whether that fits."""

    name: str
    found: str
    expected: str
    ok: bool


@dataclass(repr=False)
class Report:
    """Everything `fsdp2-lab doctor` says."""

    checks: list[Check]
    uses: str

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def to_json(self) -> dict:
        found = machine()
        facts = {"backend": found.backend, "gpus": found.gpus, "cores": found.cores, "ranks": found.default_ranks}
        return {"ok": self.ok, **facts, "how": found.how, "checks": [asdict(check) for check in self.checks]}

    def __repr__(self) -> str:
        rows = [("", "", "found", "expected")]
        rows += [("ok" if check.ok else "NO", check.name, check.found, check.expected) for check in self.checks]
        lines = [f"{ok:<4}{name:<16}{found:<32}{expected}" for ok, name, found, expected in rows]
        return "\n".join([*lines, "", f"Notebooks and scripts will use: {self.uses}."])


def doctor() -> Report:
    """Examine this machine. Nothing is started, nothing is written."""
    python_ok = PYTHON_FROM <= sys.version_info[:2] < PYTHON_BELOW
    total = psutil.virtual_memory().total
    found = machine()
    checks = [
        Check("python", platform.python_version(), "3.11 to 3.13", python_ok),
        *(_package(requirement) for requirement in _requirements()),
        Check("devices", f"{found.gpus} GPUs" if found.gpus else "no GPU: ranks share the CPU", "either will do", True),
        Check("cores", str(found.cores), "2 or more", found.cores >= 2),
        Check("memory", format_bytes(total), f"{format_bytes(_NEEDED_BYTES)} or more", total >= _NEEDED_BYTES),
    ]
    return Report(checks, found.describe())


def _requirements() -> list[Requirement]:
    # The package's own list, without what only its tests need.
    listed = [Requirement(text) for text in requires("fsdp2-lab") or []]
    return [need for need in listed if not need.marker or need.marker.evaluate({"extra": "notebooks"})]


def _package(need: Requirement) -> Check:
    try:
        found = version(need.name)
    except PackageNotFoundError:
        return Check(need.name, "not installed", str(need.specifier), False)
    return Check(need.name, found, str(need.specifier), need.specifier.contains(found, prereleases=True))
