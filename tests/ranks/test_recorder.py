"""The recorder in the hands of a script that does not know its rules: nothing is lost, nothing is wrong."""

import os
import subprocess
import sys

import pytest

from fsdp2_lab.contract.record import RankRecord, read_records

MIB = 2**20


@pytest.fixture(scope="module")
def awkward(scripts, tmp_path_factory) -> tuple[RankRecord, str]:
    home = tmp_path_factory.mktemp("home")
    environment = os.environ | {"FSDP2_LAB_HOME": str(home), "PYTHONWARNINGS": "error::UserWarning"}
    command = [sys.executable, scripts / "awkward.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    (run_dir,) = (home / "runs").iterdir()
    (record,) = read_records(run_dir)
    return record, done.stderr


def test_each_misuse_is_refused_in_one_sentence_and_the_script_goes_on(awkward, is_one_sentence):
    sayings = awkward[0].values["sayings"]
    assert "open in this process already" in sayings["open twice"]
    assert "inside `for batch" in sayings["stage in loop"]
    assert "record.note" in sayings["log outside"]
    assert "marked before" in sayings["stage twice"]
    assert "not Tensor" in sayings["note a tensor"] and ".tolist()" in sayings["note a tensor"]
    assert len(sayings) == 5


def test_a_loop_that_breaks_off_keeps_its_account(awkward):
    record, _ = awkward
    stages = {row.name: row for row in record.stages}
    assert [step.loss for step in record.steps] == [1.5] * 4  # the fifth was broken off
    assert stages["loop"].bytes_after == pytest.approx(5 * MIB, abs=4096)
    assert stages["after"].bytes_before == stages["loop"].bytes_after


def test_what_another_thread_allocates_last_is_in_the_account(awkward):
    stages = {row.name: row for row in awkward[0].stages}
    assert stages["after"].bytes_after == pytest.approx(13 * MIB, abs=4096)


def test_the_scripts_own_profiler_costs_a_stage_its_bytes_and_nothing_else(awkward):
    stages = {row.name: row for row in awkward[0].stages}
    assert stages["profiled"].seconds > 0
    assert stages["last"].bytes_before == pytest.approx(13 * MIB, abs=4096)


def test_the_stage_that_failed_has_its_numbers(awkward):
    record, said = awkward
    assert (record.status, record.error.type, record.error.stage) == ("failed", "ValueError", "last")
    assert record.stages[-1].seconds is not None
    assert record.stages[-1].peak_bytes >= 13 * MIB
    assert said.count("Traceback") == 1
