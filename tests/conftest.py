"""Fixtures for all tests: a project folder of their own, so that the checkout stays clean, and no GPU."""

import os
import signal
from pathlib import Path

import psutil
import pytest

# Before anything imports torch: these tests are about ranks on a CPU; tests/gpu has its own machine.
if "FSDP2_LAB_GPU_TESTS" not in os.environ:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

# A job in a script's background ignores Ctrl-C, one under nohup a closed terminal, and so would every launcher that
# these tests send them to.
for ignored, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, usual)

CHECKOUT = Path(__file__).parents[1]


def pytest_addoption(parser):
    # Here and not in faults/: only the conftest of the tests' root is read before the command line is.
    parser.addoption("--faults-all", action="store_true", help="run every fault, not the fast part alone")


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The repository itself."""
    return CHECKOUT


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """An empty project folder that scripts, runs and checkpoints resolve under."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("FSDP2_LAB_HOME", str(folder))
    monkeypatch.delenv("FSDP2_LAB_RUN_DIR", raising=False)
    return folder


@pytest.fixture(scope="session")
def is_one_sentence():
    """Whether a message is what bad input should give: one short line with a full stop, and no traceback."""

    def check(message: str) -> bool:
        return "\n" not in message and message.endswith(".") and len(message) < 400

    return check


@pytest.fixture(scope="session")
def processes_of():
    """The processes that have a run folder in their environment: what is left of that run."""

    def find(run_dir: Path) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("FSDP2_LAB_RUN_DIR") == str(run_dir):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    return find
