"""In a real Jupyter kernel: the cell raises, whatever ends the kernel ends the ranks, and papermill fails there."""

import os
import shutil
import signal
import sys
import time

import nbformat
import pytest
from harness import SCRIPTS
from jupyter_client.manager import start_new_kernel
from promises import nothing_left, nothing_lost

STOP_SECONDS = 10.0
LAUNCH = """
import os
os.environ["FSDP2_LAB_FAULT"] = "{name}:{folder}"
from fsdp2_lab import launch
launch("{stage}", ranks=2, timeout=60)
"""


class Kernel:
    """A kernel in a watched project; cells go to it as from JupyterLab."""

    def __init__(self, lab):
        self.lab = lab
        (lab.home / "launch").mkdir()
        for script in ("faults.py", "foreign_faults.py"):
            shutil.copy(SCRIPTS / script, lab.home / "launch" / script)
        self.manager, self.client = start_new_kernel(
            kernel_name="python3", env=lab.environment, cwd=str(lab.home), startup_timeout=60
        )
        self.pid = self.manager.provisioner.pid
        lab.watch.follow(self.pid)

    def start_cell(self, source: str) -> None:
        self._message = self.client.execute(source)

    def end_cell(self, seconds: float = 60) -> dict:
        """The reply to the cell: its status, and the error's name, value and traceback."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            reply = self.client.get_shell_msg(timeout=deadline - time.monotonic())
            if reply["parent_header"].get("msg_id") == self._message:
                return reply["content"]
        raise AssertionError(f"the cell did not end within {seconds:g} s")

    def launch(self, name: str, stage: str = "faults") -> None:
        self.start_cell(LAUNCH.format(name=name, folder=self.lab.folder, stage=stage))

    def wait_until_reached(self, ranks: int = 2, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while len(self.lab.reached) < ranks:
            assert time.monotonic() < deadline, "no rank began"
            time.sleep(0.05)


@pytest.fixture(params=["cold", "warm"])
def kernel(request, lab):
    """A kernel whose launches are cold, and one whose ranks are forked from a server that it keeps."""
    lab.environment["FSDP2_LAB_WARM"] = str(int(request.param == "warm"))
    kernel = Kernel(lab)
    yield kernel
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel(now=True)


def left(lab, kernel, seconds: float = 2.0) -> list[str]:
    """Processes that a launch left: all but what the kernel keeps warm for the next one, as its own child."""
    lab.adopt()
    own = kernel.manager.provisioner.pid
    processes = lab.watch.left(seconds, but=lambda process: own in (process.pid, process.ppid()))
    lab.measures["processes_left"] = len(processes)
    return processes


def test_a_failed_rank_fails_the_cell_and_the_next_cell_launches_again(kernel, lab):
    kernel.launch("exception")
    reply = kernel.end_cell()
    lab.measures["seconds_to_report"] = time.monotonic() - float((lab.folder / "fault").read_text())
    assert (reply["status"], reply["ename"]) == ("error", "StageFailed")
    assert reply["evalue"].startswith("rank 1 of 2 failed first, in stage work"), reply["evalue"]
    assert "ValueError: boom on rank 1" in reply["evalue"]
    assert "fsdp2_lab/lab/" not in "".join(reply["traceback"])
    assert not left(lab, kernel)
    kernel.launch("well")
    assert kernel.end_cell()["status"] == "ok"
    assert not left(lab, kernel)


@pytest.mark.parametrize("presses", [pytest.param(1, marks=pytest.mark.fast), 2])
def test_the_stop_button_ends_every_rank(presses, kernel, lab):
    kernel.launch("deaf", "foreign_faults")
    kernel.wait_until_reached()
    sent = time.monotonic()
    for _ in range(presses):
        kernel.manager.interrupt_kernel()
        time.sleep(0.4 if presses > 1 else 0)
    reply = kernel.end_cell(30)
    seconds = time.monotonic() - sent
    lab.measures |= {"kind": "end", "seconds_to_report": seconds}
    assert (reply["status"], reply["ename"]) == ("error", "StageInterrupted"), reply
    assert seconds < STOP_SECONDS
    assert not left(lab, kernel)
    kernel.start_cell("1 + 1")
    assert kernel.end_cell()["status"] == "ok"


@pytest.mark.parametrize("now", [False, True], ids=["asked", "killed"])
def test_a_restarted_kernel_leaves_no_rank(now, kernel, lab):
    kernel.launch("deaf", "foreign_faults")
    kernel.wait_until_reached()
    before = kernel.manager.provisioner.pid
    sent = time.monotonic()
    kernel.manager.restart_kernel(now=now)
    assert kernel.manager.provisioner.pid != before
    assert left(lab, kernel, STOP_SECONDS) == []
    lab.measures |= {"kind": "end", "seconds_to_report": time.monotonic() - sent, "processes_left": 0}
    kernel.client.wait_for_ready(timeout=60)
    kernel.launch("well")
    assert kernel.end_cell()["status"] == "ok"


@pytest.mark.parametrize(("name", "stage"), [("wait", "faults"), ("deaf", "foreign_faults")])
def test_a_killed_kernel_takes_its_ranks_with_it(name, stage, kernel, lab):
    kernel.launch(name, stage)
    kernel.wait_until_reached()
    run_dirs = list((lab.home / "runs").glob("*"))
    os.kill(kernel.pid, signal.SIGKILL)
    sent = time.monotonic()
    leftover = left(lab, kernel, STOP_SECONDS)
    lab.measures |= {"kind": "end", "seconds_to_report": time.monotonic() - sent}
    assert leftover == []
    assert lab.watch.temporary_files() == []
    if stage == "faults":
        from fsdp2_lab.contract.record import read_records

        records = read_records(run_dirs[0])
        assert [[row.name for row in record.stages] for record in records] == [["join", "work"]] * 2


def test_papermill_fails_at_the_cell_that_launched(lab):
    (lab.home / "launch").mkdir()
    shutil.copy(SCRIPTS / "faults.py", lab.home / "launch" / "faults.py")
    sources = [
        LAUNCH.format(name="well", folder=lab.folder, stage="faults"),
        LAUNCH.format(name="sigkill", folder=lab.folder, stage="faults"),
        f"open({str(lab.home / 'went_on')!r}, 'w')",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, lab.home / "in.ipynb")
    process = lab.start([sys.executable, "-m", "papermill", "in.ipynb", "out.ipynb"])
    ended = lab.end(process)
    lab.measures["seconds_to_report"] = ended.seconds_to_report
    broken = nothing_left(lab, ended) + nothing_lost(lab, ended, None)
    assert not broken, "\n".join([*broken, ended.said])
    assert ended.code != 0
    assert "StageFailed" in ended.stderr and "was ended by SIGKILL first" in ended.stderr, ended.said
    assert not (lab.home / "went_on").exists()
    cells = [cell for cell in nbformat.read(lab.home / "out.ipynb", 4).cells if cell.cell_type == "code"]
    failed = [any(output.output_type == "error" for output in cell.outputs) for cell in cells]
    assert failed == [False, True, False]
