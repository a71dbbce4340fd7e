"""The kernel ends a rank for want of memory: a limit on this launch alone, and the cause told with its evidence."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from harness import SCRIPTS, Fault
from promises import broken_promises

LIMIT_BYTES = 3 * 2**29  # two ranks' imports fit, with room for one to grow
MOUNTED = Path("/sys/fs/cgroup")


@pytest.fixture
def cgroup():
    """A control group with a memory limit, of either version; skips where this machine does not let us make one."""
    version_1 = (MOUNTED / "memory").is_dir()
    folder = (MOUNTED / "memory" if version_1 else MOUNTED) / f"fsdp2-lab-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / ("memory.limit_in_bytes" if version_1 else "memory.max")).write_text(str(LIMIT_BYTES))
        with suppress(OSError):  # no swap to flee to, where that is counted
            (folder / ("memory.memsw.limit_in_bytes" if version_1 else "memory.swap.max")).write_text(
                str(LIMIT_BYTES if version_1 else 0)
            )
    except OSError as error:
        with suppress(OSError):
            folder.rmdir()
        pytest.skip(f"no control group of our own with a memory limit: {error}")
    yield folder
    folder.rmdir()


def test_the_kernels_verdict_is_the_cause(lab, cgroup):
    fault = Fault(
        "eats-memory",
        r"^rank 1 of 2 was ended by SIGKILL first, in stage work\.\nCause: out of memory: the kernel ended",
        "SIGKILL",
        recorded="incomplete",
    )

    def join() -> None:
        (cgroup / "cgroup.procs").write_text(str(os.getpid()))

    ended = lab.run(SCRIPTS / fault.script, fault.name, preexec_fn=join)
    broken = broken_promises(lab, ended, fault)
    assert not broken, "\n".join([*broken, ended.said])
