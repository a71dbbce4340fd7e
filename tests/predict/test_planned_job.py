"""The planner's dry run, for real: the script played, and set against the closed form."""

import pytest

from fsdp2_lab.show.planned_job import PlannedJob


@pytest.fixture
def job(checkout, monkeypatch) -> PlannedJob:
    monkeypatch.setenv("FSDP2_LAB_HOME", str(checkout))
    return PlannedJob("byte-llama", ranks=64, gib_per_gpu=16, batch=2, seq=128)


def test_the_dry_run_of_a_planned_job_confirms_the_closed_form(job):
    found = job.dry_run()
    assert found.how == "dry run (CUDA)" and found.ranks == 64
    assert job.fit.account.peak_bytes == pytest.approx(found.peak_bytes, rel=0.03)
    assert job.dry_run_line.startswith("dry run (CUDA): ") and job.dry_run_line.endswith("% against it.")


def test_where_there_is_no_script_the_planner_says_so(job, home, is_one_sentence):
    assert job.dry_run() is None
    assert job.dry_run_line.startswith("No dry run: No script ") and is_one_sentence(job.dry_run_line)
