"""The faults: each a real launch that something happens to. Run all of them with `make faults`.

Where `FSDP2_LAB_FAULTS_JSON` names a file, every test adds a line to it: what `benchmarks/faults.py` reads.
"""

import json
import os
from pathlib import Path

import pytest
from harness import Lab

FILE_VARIABLE = "FSDP2_LAB_FAULTS_JSON"


def pytest_collection_modifyitems(config, items):
    """Without `--faults-all`, keep the part that stands for the rest: tests marked `fast`."""
    if config.getoption("--faults-all"):
        return
    here = Path(__file__).parent
    slow = [item for item in items if here in item.path.parents and not item.get_closest_marker("fast")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    setattr(item, f"report_{report.when}", report)
    return report


@pytest.fixture(autouse=True)
def reported(request):
    """Adds to the benchmark's file whether a test passed, and what it measured with its `lab`."""
    yield
    called = getattr(request.node, "report_call", None)
    if (file := os.environ.get(FILE_VARIABLE)) and called and not called.skipped:
        lab = request.node.funcargs.get("lab")
        row = {"name": request.node.name, "file": request.node.path.stem, "survived": called.passed}
        with Path(file).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row | (lab.measures if lab else {})) + "\n")


@pytest.fixture
def lab(tmp_path):
    """A project folder of its own, watched; it keeps what a test measures with it."""
    lab = Lab(tmp_path)
    with lab.watch:
        yield lab
        lab.adopt()  # so that a test that failed half-way leaves nothing either
