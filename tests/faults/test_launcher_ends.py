"""However the launcher itself is ended, its ranks end too, and what they recorded is kept."""

import fcntl
import os
import pty
import signal
import sys
import termios
import time

import psutil
import pytest
from harness import SCRIPTS
from promises import nothing_left, nothing_lost

STOP_SECONDS = 10.0  # from a signal to the launcher's end
ORPHAN_SECONDS = 10.0  # from the launcher's death to its ranks' own

RECORDS, FOREIGN = SCRIPTS / "faults.py", SCRIPTS / "foreign_faults.py"


def interrupted(lab, ended, sent: float, stage: str | None) -> list[str]:
    """What is wrong with a launch that was interrupted, a sentence each."""
    lab.measures |= {"kind": "end", "seconds_to_report": ended.ended - sent}
    broken = nothing_left(lab, ended) + nothing_lost(lab, ended, stage)
    if ended.ended - sent > STOP_SECONDS:
        broken.append(f"took {ended.ended - sent:.1f} s to end; {STOP_SECONDS:g} s are promised")
    if (ended.code, ended.told["status"]) != (130, "interrupted"):
        broken.append(f"exit code {ended.code}, status {ended.told['status']}")
    if "Traceback" in ended.stderr:
        broken.append("a traceback is on stderr")
    for rank in ended.reached if stage else []:
        if (status := getattr(ended.record(rank), "status", None)) not in ("incomplete", "failed"):
            broken.append(f"the record of rank {rank} says {status}")
    return broken


@pytest.mark.parametrize(
    ("name", "sent", "what", "script"),
    [
        pytest.param("SIGINT", [signal.SIGINT], "wait", RECORDS, id="sigint", marks=pytest.mark.fast),
        pytest.param("SIGTERM", [signal.SIGTERM], "wait", RECORDS, id="sigterm"),
        pytest.param("SIGINT", [signal.SIGINT], "wait", FOREIGN, id="sigint-foreign"),
        pytest.param("SIGINT", [signal.SIGINT] * 2, "deaf", FOREIGN, id="sigint-twice-deaf-ranks"),
        pytest.param("SIGHUP", [signal.SIGHUP], "deaf", FOREIGN, id="sighup-deaf-ranks"),
        pytest.param("SIGTERM", [signal.SIGTERM, signal.SIGINT], "deaf", FOREIGN, id="sigterm-sigint-deaf-ranks"),
    ],
)
def test_a_signal_ends_the_launch_and_all_it_started(name, sent, what, script, lab):
    process = lab.start(lab.command(script, what))
    lab.wait_until_reached(process)
    began = time.monotonic()
    for number in sent:
        process.send_signal(number)
        time.sleep(0.5 if len(sent) > 1 else 0)
    ended = lab.end(process, 60)
    broken = interrupted(lab, ended, began, "work" if script is RECORDS else None)
    assert not broken, "\n".join([*broken, ended.said])


@pytest.mark.parametrize("seconds", [0.1, 0.6, 1.5, 3.0])
def test_an_interrupt_before_any_rank_has_begun_leaves_nothing(seconds, lab):
    process = lab.start(lab.command(FOREIGN, "wait"))
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    ended = lab.end(process, 60)
    lab.measures |= {"kind": "end", "seconds_to_report": ended.ended - sent}
    broken = nothing_left(lab, ended)
    assert not broken, "\n".join([*broken, ended.said])
    assert ended.code != 0 and ended.ended - sent < STOP_SECONDS, ended.said


def test_a_terminal_that_is_closed_takes_the_ranks_with_it(lab):
    ours, theirs = pty.openpty()

    def take_terminal():
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
        for stream in (0, 1, 2):
            os.dup2(theirs, stream)

    process = lab.start(lab.command(RECORDS, "wait"), preexec_fn=take_terminal)
    os.close(theirs)
    lab.wait_until_reached(process)
    sent = time.monotonic()
    os.close(ours)
    ended = lab.end(process, 60)
    lab.measures |= {"kind": "end", "seconds_to_report": ended.ended - sent}
    broken = nothing_left(lab, ended) + nothing_lost(lab, ended, "work")
    assert not broken, "\n".join(broken)
    assert ended.code != 0 and ended.ended - sent < STOP_SECONDS
    assert {ended.record(rank).status for rank in (0, 1)} <= {"incomplete", "failed"}


def test_under_nohup_a_closed_terminal_changes_nothing(lab):
    process = lab.start(lab.command(FOREIGN, "wait"), preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    lab.wait_until_reached(process)
    process.send_signal(signal.SIGHUP)
    time.sleep(3)
    assert process.poll() is None and all(psutil.pid_exists(pid) for pid in lab.reached.values())
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    ended = lab.end(process, 60)
    broken = interrupted(lab, ended, sent, None)
    assert not broken, "\n".join([*broken, ended.said])


@pytest.mark.parametrize(
    ("what", "script"),
    [
        pytest.param("wait", RECORDS, id="records", marks=pytest.mark.fast),
        pytest.param("wait", FOREIGN, id="foreign"),
        pytest.param("deaf", FOREIGN, id="foreign-deaf"),
    ],
)
def test_ranks_outlive_a_killed_launcher_by_seconds_only(what, script, lab):
    process = lab.start(lab.command(script, what))
    lab.wait_until_reached(process)
    process.kill()
    sent = time.monotonic()
    ended = lab.end(process)
    left = lab.watch.left(ORPHAN_SECONDS)
    gone = time.monotonic()
    broken = nothing_left(lab, ended) + nothing_lost(lab, ended, "work" if script is RECORDS else None)
    lab.measures |= {"kind": "end", "seconds_to_report": gone - sent, "processes_left": len(left)}
    assert not broken, "\n".join(broken)


def ancestors_of_a_rank(lab, launcher: int) -> list[psutil.Process]:
    """What stands between the launcher and a rank, the nearest to the rank first."""
    line = psutil.Process(lab.reached[0]).parents()
    return line[: [process.pid for process in line].index(launcher)]


@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGTERM", "SIGSEGV"])
def test_an_agent_that_dies_fails_the_launch(signal_name, lab):
    process = lab.start(lab.command(RECORDS, "wait"))
    lab.wait_until_reached(process)
    agent = ancestors_of_a_rank(lab, process.pid)[0]
    sent = time.monotonic()
    agent.send_signal(getattr(signal, signal_name))
    ended = lab.end(process, 60)
    lab.measures |= {"kind": "end", "seconds_to_report": ended.ended - sent}
    broken = nothing_left(lab, ended) + nothing_lost(lab, ended, "work")
    if ended.ended - sent > STOP_SECONDS:
        broken.append(f"took {ended.ended - sent:.1f} s to report")
    if (ended.code, ended.told["status"]) != (1, "failed"):
        broken.append(f"exit code {ended.code}, status {ended.told['status']}")
    if signal_name not in ended.stderr:
        broken.append(f"stderr does not name {signal_name}")
    for rank in ended.reached:
        if (status := getattr(ended.record(rank), "status", None)) not in ("incomplete", "failed"):
            broken.append(f"the record of rank {rank} says {status}")
    assert not broken, "\n".join([*broken, ended.said])


def test_a_guard_of_the_agent_that_dies_fails_the_launch_too(lab):
    process = lab.start(lab.command(FOREIGN, "deaf"))
    lab.wait_until_reached(process)
    line = ancestors_of_a_rank(lab, process.pid)
    if len(line) < 2:
        pytest.skip("the agent is the launcher's own child: there is no guard between them")
    sent = time.monotonic()
    line[-1].kill()
    ended = lab.end(process, 60)
    lab.measures |= {"kind": "end", "seconds_to_report": ended.ended - sent}
    broken = nothing_left(lab, ended)
    assert not broken, "\n".join([*broken, ended.said])
    assert ended.code == 1 and ended.ended - sent < STOP_SECONDS, ended.said


def test_a_closed_pipe_for_its_output_does_not_stop_the_cleaning_up(lab):
    # `fsdp2-lab run … | head`: nobody reads any more when the launch ends.
    process = lab.start(
        ["/bin/sh", "-c", '"$@" 2>&1 | head -c 1 > /dev/null', "sh", *lab.command(FOREIGN, "exception")]
    )
    ended = lab.end(process, 60)
    broken = nothing_left(lab, ended)
    assert not broken, "\n".join(broken)
    assert sys.platform != "linux" or not lab.watch.ports_held()
