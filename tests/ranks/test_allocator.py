"""The CPU meter tells the truth: its totals are the bytes of the tensors that are alive.

Without `count_every_thread` a free by one of gloo's threads may be lost. Whether one is, is a race, so no
test asserts it; the module's text says it.
"""

import ctypes
import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch

TOLERANCE = 64 * 1024


@pytest.fixture(scope="module")
def reports(project, scripts, saved_models, tmp_path_factory):
    """What two ranks saw over building a model, seven steps, and reading a mapped file."""
    folder = tmp_path_factory.mktemp("reports")
    file = saved_models["llama"] / "model.safetensors"
    ended = project.run(scripts / "allocator_truth.py", file, folder)
    assert ended.code == 0, ended.stderr
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


def test_the_account_after_every_step_is_what_tensors_hold(reports):
    for report in reports:
        for lap in (report["build"], *report["steps"]):
            assert lap["after"] == pytest.approx(lap["live"], abs=TOLERANCE)


def test_there_is_enough_alive_to_be_wrong_about(reports):
    for report in reports:
        assert report["steps"][-1]["live"] > 50 * TOLERANCE
        assert report["steps"][-1]["peak"] > report["steps"][-1]["after"] + 10 * TOLERANCE


def test_gradients_that_are_kept_are_in_the_account(reports):
    for report in reports:
        kept = report["step_with_gradients_kept"]
        assert kept["after"] == pytest.approx(kept["live"], abs=TOLERANCE)
        assert kept["after"] > report["steps"][-1]["after"] + 10 * TOLERANCE


def test_the_account_does_not_grow_from_step_to_step(reports):
    for report in reports:
        assert report["steps"][-1]["after"] == pytest.approx(report["steps"][1]["after"], abs=TOLERANCE)


def test_a_lap_begins_where_the_one_before_ended(reports):
    for report in reports:
        laps = [report["build"], *report["steps"]]
        for earlier, later in pairwise(laps):
            assert later["before"] == pytest.approx(earlier["after"], abs=TOLERANCE)


def test_adams_states_are_made_in_the_first_step(reports):
    for report in reports:
        states = report["steps"][0]["after"] - report["build"]["after"]
        assert states == pytest.approx(2 * report["build"]["after"], rel=0.05)


def test_a_mapped_file_does_not_disturb_the_account(reports):
    for report in reports:
        whole, mapped, unmapped = report["mapped"]
        for lap in (whole, mapped, unmapped):
            assert lap["before"] == pytest.approx(report["steps"][-1]["after"], abs=TOLERANCE)
            assert lap["after"] == lap["before"]


def test_a_mapped_file_is_seen_by_the_tensors_alone(reports):
    # Otherwise nothing was mapped, and the test above says nothing.
    for report in reports:
        whole, mapped, unmapped = report["mapped"]
        assert whole["live"] == unmapped["live"] < mapped["live"] - 2 * TOLERANCE


def test_torch_still_has_the_flag_that_counts_every_thread():
    library = next(Path(torch.__file__).parent.glob("lib/libc10.*"))
    try:
        ctypes.c_bool.in_dll(ctypes.CDLL(str(library)), "FLAGS_caffe2_report_cpu_memory_usage")
    except ValueError:
        pytest.fail(f"torch {torch.__version__} has no FLAGS_caffe2_report_cpu_memory_usage: see rank/allocator.py")


def test_torch_still_tells_allocations_among_the_profilers_events():
    from torch._C import _profiler

    assert hasattr(getattr(_profiler, "_EventType", None), "Allocation"), (
        f"torch {torch.__version__} has no _EventType.Allocation: see rank/allocator.py"
    )


def test_a_lap_gives_bytes_before_after_and_at_peak():
    from fsdp2_lab.rank.allocator import AllocatorTrace, count_every_thread

    count_every_thread(True)
    try:
        trace = AllocatorTrace()
        kept, passing = torch.ones(2**20), torch.ones(3 * 2**20)  # 4 and 12 MiB
        del passing
        lap = trace.stop()
    finally:
        count_every_thread(False)
    assert lap.bytes_after - lap.bytes_before == pytest.approx(kept.nbytes, abs=1024)
    assert lap.peak_bytes - lap.bytes_before == pytest.approx(16 * 2**20, abs=1024)


def test_a_lap_in_which_nothing_happens_has_a_total_all_the_same():
    from fsdp2_lab.rank.allocator import AllocatorTrace, count_every_thread

    count_every_thread(True)
    try:
        lap = AllocatorTrace().stop()
    finally:
        count_every_thread(False)
    assert lap.bytes_before == lap.bytes_after == lap.peak_bytes
