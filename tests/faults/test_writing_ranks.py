"""Whatever a rank writes, and wherever, the cause of its failure is read and told."""

import shutil

import pytest
from harness import SCRIPTS, Fault
from promises import broken_promises, not_well, nothing_left

RAISED = r"^rank 1 of \d failed first, in stage work"
BOOM = "^boom on rank 1$"
FAULTS = [
    Fault("flood", RAISED, "ValueError", BOOM, recorded="failed"),
    Fault("odd-bytes", RAISED, "ValueError", BOOM, recorded="failed"),
    Fault("odd-message", RAISED, "ValueError", "boom", recorded="failed"),
    Fault("long-message", RAISED, "ValueError", "^boom boom", recorded="failed"),
    Fault("closed-stdout", RAISED, "ValueError", BOOM, recorded="failed"),
    Fault("writes-over-records", RAISED, "ValueError", BOOM, keeps_records=False),
    Fault("deletes-run-folder", RAISED, "ValueError", BOOM, keeps_records=False),
    Fault("killed-while-writing", r"^rank 1 of 2 was ended by SIGKILL first", "SIGKILL", recorded="incomplete"),
]


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, id=fault.id, marks=[pytest.mark.fast] * fault.fast) for fault in FAULTS]
)
def test_the_cause_is_found_in_whatever_was_written(fault, lab):
    ended = lab.meet(fault)
    broken = broken_promises(lab, ended, fault)
    assert not broken, "\n".join([*broken, ended.said])


def test_a_syntax_error_is_told_with_its_line(lab):
    script = lab.home / "broken.py"
    script.write_text("import os\n\ndef f(:\n    pass\n")
    ended = lab.run(script)
    broken = nothing_left(lab, ended)
    assert not broken, "\n".join([*broken, ended.said])
    assert ended.code in (1, 2), ended.said
    assert "SyntaxError" in ended.stderr and "broken.py" in ended.stderr, ended.said
    assert "line 3" in ended.stderr, ended.said


def test_a_script_that_is_deleted_while_it_runs_ends_as_it_would_have(lab):
    script = lab.home / "deleted.py"
    shutil.copy(SCRIPTS / "foreign_faults.py", script)
    ended = lab.run(script, "deleted")
    broken = not_well(lab, ended, stage=None)
    assert not broken, "\n".join([*broken, ended.said])
    assert not script.exists()
