"""Warm ranks: forked from a server that has imported already, and not to be told from cold ones but by time."""

import os
import sys

import pytest

from fsdp2_lab import launch
from fsdp2_lab.lab import warm

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ranks are forked on Linux only")

# What differs between any two launches, warm or not.
OF_A_LAUNCH = {
    *("FSDP2_LAB_RUN_DIR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "TORCH_FR_DUMP_TEMP_FILE"),
    "PYTEST_CURRENT_TEST",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, checkout, scripts):
    """A project of its own, with the workbook's scripts and ours, and this process's server ended afterwards."""
    home = tmp_path_factory.mktemp("warm") / "home"
    (home / "launch").mkdir(parents=True)
    for script in (*(checkout / "launch").glob("*.py"), scripts / "mirror.py"):
        (home / "launch" / script.name).symlink_to(script) if False else (home / "launch" / script.name).write_text(
            script.read_text()
        )
    before = os.environ.get("FSDP2_LAB_HOME")
    os.environ["FSDP2_LAB_HOME"] = str(home)
    yield home
    warm.stop()
    os.environ.pop("FSDP2_LAB_HOME")
    if before:
        os.environ["FSDP2_LAB_HOME"] = before


@pytest.fixture(scope="module")
def seen(folder):
    """What the script saw on each rank: warm and cold."""
    return {
        how: launch("mirror", ranks=2, timeout=60, warm=how == "warm", what="x") if False else _mirror(how)
        for how in ("warm", "cold")
    }


def _mirror(how, what="look"):
    from fsdp2_lab.contract import workspace
    from fsdp2_lab.lab.launcher import execute
    from fsdp2_lab.lab.progress import Progress

    return execute(workspace.script_path("mirror"), 2, [what], 60, Progress(), warm=how == "warm")
