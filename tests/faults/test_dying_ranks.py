"""A rank that dies, however it dies, fails the launch: the cause is named, nothing is left, nothing is lost."""

import pytest
from harness import Fault
from promises import broken_promises

RAISED = r"^rank 1 of \d failed first, in stage work"
ENDED = r"^rank 1 of \d was ended by {} first, in stage work\."
MEMORY = r"\n(Likely cause|Cause): .*memory"
LEFT = r"^rank 1 of \d .*left"

FAULTS = [
    Fault("exception", RAISED, "ValueError", "^boom on rank 1$", recorded="failed", tracebacks=1, fast=True),
    Fault("exception", RAISED, "ValueError", "^boom on rank 1$", recorded="failed", tracebacks=1, ranks=3),
    Fault(
        "exception-on-all",
        r"^rank [01] of 2 failed first, in stage work",
        "ValueError",
        "^boom on every rank$",
        rank=None,
    ),
    Fault("chained-exception", RAISED, "ValueError", "^boom on rank 1$", recorded="failed", tracebacks=2),
    Fault("backward", RAISED, "ValueError", "^boom in backward$", recorded="failed", tracebacks=1),
    Fault("thread", RAISED, "ValueError", "^boom on rank 1$", recorded="failed", tracebacks=1, fast=True),
    Fault(
        "import",
        r"^rank [01] of 2 failed first",
        "ModuleNotFoundError",
        "a_module_that_nobody_has",
        rank=None,
        stage=None,
    ),
    Fault("exit-0", LEFT, "LeftEarly", fast=True),
    Fault("exit-0", LEFT, "LeftEarly", ranks=3),
    Fault("exit-0-alone", LEFT, "LeftEarly"),
    Fault("exit-3", RAISED, error="exit code 3"),
    Fault("exit-256", RAISED, error="exit code 1", recorded="failed"),
    Fault("exit-handler", RAISED, "ValueError", "^boom on rank 1$", recorded="failed", tracebacks=1),
    Fault("forked-child", RAISED, "ValueError", "^boom on rank 1$", recorded="failed", tracebacks=1),
    Fault("own-timeout", RAISED, "TimeoutError", "timed out", recorded="failed", tracebacks=1),
    Fault("logs-are-pipes", RAISED, error="exit code 3", recorded="incomplete"),
    Fault("os-exit-0", LEFT, "LeftEarly", recorded="incomplete"),
    Fault("os-exit-0-alone", LEFT, "LeftEarly", recorded="incomplete"),
    Fault("os-exit-3", RAISED, error="exit code 3", recorded="incomplete", ranks=3),
    Fault("sigkill", ENDED.format("SIGKILL"), "SIGKILL", hint=MEMORY, recorded="incomplete", fast=True),
    Fault("sigkill", ENDED.format("SIGKILL"), "SIGKILL", hint=MEMORY, recorded="incomplete", ranks=3),
    Fault("sigsegv", ENDED.format("SIGSEGV"), "SIGSEGV", recorded="incomplete"),
    Fault("sigabrt", ENDED.format("SIGABRT"), "SIGABRT", recorded="incomplete"),
    Fault("sigbus", ENDED.format("SIGBUS"), "SIGBUS", hint="(?i)shared memory", recorded="incomplete"),
    Fault("sigterm", ENDED.format("SIGTERM"), "SIGTERM", recorded="incomplete"),
    Fault("torch-memory", RAISED, "RuntimeError", "(?i)memory", recorded="failed"),
    Fault("python-memory", RAISED, "MemoryError", recorded="failed"),
    Fault("stepped-clock", RAISED, "ValueError", "^boom on rank 1$", recorded="failed"),
    Fault("grandchildren", RAISED, "ValueError", "^boom on rank 1$", recorded="failed", fast=True),
]

FOREIGN = [
    Fault("exception", r"^rank 1 of 2 failed first", "ValueError", "one and a half", fast=True, tracebacks=1),
    Fault("exception", r"^rank 1 of 3 failed first", "ValueError", "one and a half", ranks=3),
    Fault("exit-3", r"^rank 1 of 2 failed first", error="exit code 3"),
    Fault("sigkill", r"^rank 1 of 2 was ended by SIGKILL first", "SIGKILL", hint=MEMORY),
    Fault("silent", r"^rank 1 of 2 failed first", error="exit code 1"),
    Fault("closes-descriptors", r"^rank 1 of 2 failed first", "ValueError", "one and a half", tracebacks=1),
    Fault("left-in-collective", r"^rank 1 of 2 .*left", "LeftEarly"),
]


def of_foreign(fault: Fault) -> Fault:
    return Fault(**{**vars(fault), "script": "foreign_faults.py", "stage": None})


def cases(faults: list[Fault]) -> list:
    return [pytest.param(fault, id=fault.id, marks=[pytest.mark.fast] * fault.fast) for fault in faults]


@pytest.mark.parametrize("fault", cases(FAULTS))
def test_a_rank_that_dies_is_named_with_its_cause(fault, lab):
    ended = lab.meet(fault)
    broken = broken_promises(lab, ended, fault)
    assert not broken, "\n".join([*broken, ended.said])


@pytest.mark.parametrize("fault", cases([of_foreign(fault) for fault in FOREIGN]))
def test_a_script_without_a_record_is_told_about_too(fault, lab):
    ended = lab.meet(fault)
    broken = broken_promises(lab, ended, fault)
    assert not broken, "\n".join([*broken, ended.said])
    for rank in range(fault.ranks):
        for stream, begin in (("stdout", "hello from"), ("stderr", "a word on stderr from")):
            assert (ended.run_dir / "logs" / f"rank{rank}.{stream}").read_text().startswith(f"{begin} rank {rank}\n")


@pytest.mark.parametrize(("variable", "value"), [("PET_MAX_RESTARTS", "1"), ("PYTHONINSPECT", "1")])
def test_no_variable_makes_a_failed_rank_end_well(variable, value, lab):
    lab.environment[variable] = value
    fault = Fault("exception", r"^rank 1 of 2 failed first", "ValueError", script="foreign_faults.py", stage=None)
    ended = lab.meet(fault)
    broken = broken_promises(lab, ended, fault)
    assert not broken, "\n".join([*broken, ended.said])
