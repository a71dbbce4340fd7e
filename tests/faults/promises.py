"""What holds for every launch, however it ends. Each check returns what was broken, a sentence each."""

import re

from harness import Ended, Fault, Lab

from fsdp2_lab.contract.record import read_launch


def nothing_left(lab: Lab, ended: Ended) -> list[str]:
    """What a launch left behind, a sentence each: processes, ports, temporary files."""
    processes = ended.watch.left()
    lab.measures["processes_left"] = len(processes)
    broken = [f"left a process: {process}" for process in processes]
    broken += [f"still holds port {port}" for port in ended.watch.ports_held()]
    broken += [f"left a temporary file: {name}" for name in ended.watch.temporary_files()]
    return broken


def nothing_lost(lab: Lab, ended: Ended, stage: str | None) -> list[str]:
    """What a launch lost of the records of the ranks that reached a stage, a sentence each."""
    broken = []
    for rank in sorted(ended.reached) if stage else []:
        record = ended.record(rank)
        if record is None:
            broken.append(f"lost the record of rank {rank}")
        elif stage not in [row.name for row in record.stages]:
            broken.append(f"rank {rank} reached {stage}, and its record does not know")
    lab.measures["records_lost"] = len(broken)
    return broken


def not_well(lab: Lab, ended: Ended, ranks: int = 2, stage: str | None = "work") -> list[str]:
    """What is wrong with a launch that should have gone well, a sentence each."""
    broken = nothing_left(lab, ended) + nothing_lost(lab, ended, stage)
    if ended.code != 0:
        return [*broken, f"exit code {ended.code}, expected 0"]
    if ended.told["status"] != "ok" or ended.told["error"]:
        broken.append(f"it went well, and is told as {ended.told['status']}: {ended.told['error']}")
    if len(ended.reached) != ranks:
        broken.append(f"ranks {sorted(ended.reached)} reached their work, expected {ranks}")
    return broken


def broken_promises(lab: Lab, ended: Ended, fault: Fault) -> list[str]:
    """Every promise that a launch broke when it met a fault, a sentence each: all of them, not the first."""
    broken = nothing_left(lab, ended)
    if fault.keeps_records:
        broken += nothing_lost(lab, ended, fault.stage)
    seconds = ended.seconds_to_report
    lab.measures["seconds_to_report"] = seconds
    if seconds is not None and seconds > fault.report_seconds:
        broken.append(f"took {seconds:.1f} s to report; {fault.report_seconds:g} s are promised")
    if ended.code not in fault.codes:
        broken.append(f"exit code {ended.code}, expected {fault.codes}")
    return broken + broken_words(ended, fault) + broken_json(ended, fault) + broken_statuses(ended, fault)


def broken_words(ended: Ended, fault: Fault) -> list[str]:
    """What is wrong with the words on stderr."""
    said, broken = ended.stderr, []
    if said.encode() != ended.raw_stderr:
        broken.append("stderr is not UTF-8")
    cause = re.search(fault.says, said, re.MULTILINE)
    if not cause:
        broken.append(f"stderr does not say {fault.says!r}")
    if not re.search(fault.hint, said):
        broken.append(f"stderr names no likely cause: {fault.hint!r}")
    first_traceback = said.find("Traceback (most recent call last)")
    if cause and -1 < first_traceback < cause.start():
        broken.append("a traceback stands before the cause")
    if fault.tracebacks is not None and (count := said.count("Traceback (most recent call last)")) != fault.tracebacks:
        broken.append(f"{count} tracebacks on stderr, expected {fault.tracebacks}")
    if re.search(r'File ".*fsdp2_lab/(lab|agent|cli)', said):
        broken.append("frames of the launcher are on stderr")
    places = [said.find(f"\n{word}") for word in ("logs:", "run:", "again:")]
    if -1 in places or places != sorted(places):
        broken.append("stderr does not end with logs:, run: and again:")
    if len(said) > 64_000:
        broken.append(f"{len(said)} characters on stderr")
    return broken


def broken_json(ended: Ended, fault: Fault) -> list[str]:
    """What is wrong with the JSON object on stdout."""
    try:
        told = ended.told
    except ValueError:
        return [f"stdout is no JSON: {ended.stdout[:200]!r}"]
    broken = []
    if told["status"] not in fault.statuses:
        broken.append(f"status {told['status']!r}, expected {fault.statuses}")
    error = told["error"]
    if error is None:
        return [*broken, "no error in the JSON"]
    if fault.rank is not None and error["rank"] != fault.rank:
        broken.append(f"blames rank {error['rank']}, not rank {fault.rank}: {error['type']}: {error['message']:.200}")
    if fault.error_type and error["type"] != fault.error_type:
        broken.append(f"error type {error['type']}, expected {fault.error_type}")
    if not re.search(fault.error, error["message"]):
        broken.append(f"error message {error['message']!r:.200}, expected {fault.error!r}")
    if error["stage"] != fault.stage:
        broken.append(f"error in stage {error['stage']!r}, expected {fault.stage!r}")
    return broken


def broken_statuses(ended: Ended, fault: Fault) -> list[str]:
    """What is wrong with the statuses in the records."""
    if ended.run_dir is None:
        return ["the launch made no run folder, or more than one"]
    broken = []
    if (launch := read_launch(ended.run_dir)) is None or launch.status not in fault.statuses:
        broken.append(f"run.json says {launch and launch.status}, expected {fault.statuses}")
    for rank in ended.reached if fault.stage and fault.keeps_records else []:
        status = getattr(ended.record(rank), "status", None)
        if rank == fault.rank and fault.recorded and status != fault.recorded:
            broken.append(f"the record of rank {rank} says {status}, expected {fault.recorded}")
        if status == "running":
            broken.append(f"the record of rank {rank} still says running")
    return broken
