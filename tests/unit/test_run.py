"""A `Run` read from hand-made records: losses, times, bytes, a tidy frame, and JSON."""

import json
import math

import pandas as pd
import pytest

from fsdp2_lab.contract.errors import StageFailed, StageInterrupted, UsageError
from fsdp2_lab.contract.record import MEASURED_CPU, RankError, StageRow, StepRow, write_launch, write_record
from fsdp2_lab.lab.runs import Run

MIB = 2**20


@pytest.fixture
def make_run(tmp_path):
    """Writes records into a folder and opens it as a run."""

    def make(*records, launch=None) -> Run:
        folder = tmp_path / "train-1"
        for record in records:
            write_record(folder, record)
        if launch:
            write_launch(folder, launch)
        return Run(folder)

    return make


@pytest.fixture
def run(make_run, rank_record, launch_record) -> Run:
    """A run of two ranks that went well."""
    return make_run(rank_record(0), rank_record(1), launch=launch_record())


def test_losses_are_those_that_rank_0_logged(run):
    assert run.losses == [6.0, 5.0, 4.0, 3.0]


def test_step_seconds_is_the_median_of_timed_steps_each_on_its_slowest_rank(run):
    # Steps 2 and 3 are timed: 1 and 2 s, 3 and 2 s. The metered ones, 9 and 8 s, do not count.
    assert run.step_seconds == 2.5


def test_step_seconds_is_none_where_every_step_was_metered(make_run, rank_record):
    assert make_run(rank_record(steps=rank_record().steps[:2])).step_seconds is None


def test_peaks_are_of_the_first_step_and_of_those_after_it_on_the_worst_rank(run):
    assert (run.step0_peak_bytes, run.peak_bytes) == (41 * MIB, 31 * MIB)


def test_a_step_counts_once_every_rank_has_finished_it(make_run, rank_record):
    run = make_run(rank_record(0), rank_record(1, steps=rank_record(1).steps[:1]))
    assert len(run.to_json()["steps"]) == 1
    assert (run.step0_peak_bytes, run.peak_bytes) == (41 * MIB, None)


def test_a_stage_is_given_by_rank(run):
    assert [row.seconds for row in run.stage("train")] == [20.0, 21.0]


def test_a_stage_that_the_run_has_not_is_answered_with_those_it_has(run, is_one_sentence):
    with pytest.raises(UsageError, match=r"'shard'.*mesh, train") as caught:
        run.stage("shard")
    assert is_one_sentence(str(caught.value))


def test_a_noted_value_is_given_by_rank(make_run, rank_record):
    run = make_run(rank_record(0, values={"rows": 3}), rank_record(1, values={"rows": 2, "b": 0}))
    assert run.noted("rows") == {0: 3, 1: 2}
    assert run.noted("b") == {1: 0}
    with pytest.raises(UsageError, match="noted: b, rows"):
        run.noted("columns")


def test_the_frame_is_tidy(run):
    frame = run.frame
    assert list(frame.columns) == ["rank", "stage", "step", "quantity", "value", "unit", "how"]
    assert frame["value"].notna().all()
    assert not frame.duplicated(["rank", "stage", "step", "quantity"]).any()
    assert set(frame["how"]) == {MEASURED_CPU}
    units = frame.drop_duplicates("quantity").set_index("quantity")["unit"].to_dict()
    assert units == {
        "seconds": "s",
        "loss": "as logged",
        "tokens": "tokens",
        "bytes_before": "bytes",
        "bytes_after": "bytes",
        "peak_bytes": "bytes",
        "rss_bytes": "bytes",
        "rss_peak_bytes": "bytes",
        "timed": "yes or no",
    }


def test_the_frame_keeps_a_loss_that_is_not_a_number_and_what_was_logged_by_name(make_run, rank_record):
    record = rank_record(0)
    record.steps[1].loss = float("nan")
    record.steps[1].values = {"grad_norm": 2.5}
    frame = make_run(record).frame.query("step == 1")
    assert frame.query("quantity == 'loss'")["value"].isna().all() and len(frame.query("quantity == 'loss'")) == 1
    assert list(frame.query("quantity == 'grad_norm'")["value"]) == [2.5]


def test_a_stage_of_another_rank_than_0_is_seen(make_run, rank_record):
    more = rank_record(1)
    more.stages.append(StageRow("only_here", seconds=1.0))
    assert make_run(rank_record(0), more).stage_names[-1] == "only_here"


def test_the_frame_holds_each_number_in_its_place(run):
    frame = run.frame
    peak = frame.query("rank == 1 and stage == 'train' and step.isna() and quantity == 'peak_bytes'")
    assert list(peak["value"]) == [46 * MIB]
    loss = frame.query("rank == 0 and step == 2 and quantity == 'loss'")
    assert list(loss["value"]) == [4.0]
    assert list(loss["stage"]) == ["train"]
    assert len(frame.query("quantity == 'peak_bytes' and step.notna()")) == 4  # two metered steps, two ranks


def test_a_run_without_records_has_an_empty_frame(make_run, launch_record):
    run = make_run(launch=launch_record())
    assert isinstance(run.frame, pd.DataFrame) and run.frame.empty
    assert (run.losses, run.stage_names, run.step_seconds, run.peak_bytes) == ([], [], None, None)


@pytest.mark.parametrize(
    ("states", "status"),
    [(("ok", "ok"), "ok"), (("ok", "failed"), "failed"), (("running", "ok"), "running"), ((), "running")],
)
def test_without_a_launcher_the_ranks_say_how_it_ended(states, status, make_run, rank_record):
    run = make_run(*(rank_record(rank, status=state) for rank, state in enumerate(states)))
    assert run.status == status


def test_the_launcher_has_the_last_word_on_how_it_ended(make_run, rank_record, launch_record):
    run = make_run(rank_record(0), rank_record(1, status="running"), launch=launch_record(status="timeout"))
    assert run.status == "timeout"


def test_json_has_the_keys_that_were_promised_and_no_others(run):
    promised = {"status", "how", "ranks", "run_dir", "command", "stages", "steps", "step0_peak_bytes", "peak_bytes"}
    what_the_launcher_sees = {"id", "seconds", "exit_codes", "rss_peak_bytes", "step_seconds"}
    assert set(run.to_json()) == promised | {"error", "explanation", "consequences"} | what_the_launcher_sees


def test_json_gives_stages_by_rank(run):
    stages = run.to_json()["stages"]
    assert [stage["name"] for stage in stages] == ["mesh", "train"]
    assert [rank["rank"] for rank in stages[1]["ranks"]] == [0, 1]
    assert {"seconds", "bytes_before", "bytes_after", "peak_bytes"} <= set(stages[1]["ranks"][0])
    assert stages[1]["ranks"][1]["seconds"] == 21.0


def test_json_gives_steps_with_peaks_where_they_were_metered(run):
    steps = run.to_json()["steps"]
    assert [step["loss"] for step in steps] == [6.0, 5.0, 4.0, 3.0]
    assert [step["tokens"] for step in steps] == [512] * 4
    assert [step["seconds"] for step in steps] == [10.0, 9.0, 2.0, 3.0]
    assert [step["peak_bytes"] for step in steps] == [41 * MIB, 31 * MIB, None, None]


def test_json_of_a_failed_run_tells_the_error(make_run, rank_record, launch_record):
    error = RankError(1, "ValueError", "boom", "Traceback …", "train", 5.0)
    told = make_run(rank_record(0), launch=launch_record(status="failed", error=error)).to_json()["error"]
    assert {key: told[key] for key in ("rank", "type", "message", "traceback")} == {
        "rank": 1,
        "type": "ValueError",
        "message": "boom",
        "traceback": "Traceback …",
    }


def test_json_of_a_run_that_went_well_has_no_error(run):
    assert run.to_json()["error"] is None


def test_json_of_a_diverged_run_is_json_that_anybody_can_read(make_run, rank_record):
    run = make_run(rank_record(steps=[StepRow(0, loss=math.nan, seconds=1.0), StepRow(1, loss=math.inf, seconds=1.0)]))

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    json.loads(json.dumps(run.to_json()), parse_constant=refuse)


def test_a_failure_reads_traceback_then_logs_then_command(make_run, rank_record, launch_record):
    error = RankError(1, "ValueError", "boom", "Traceback …\nValueError: boom\n", "train", 5.0)
    run = make_run(rank_record(0), launch=launch_record(status="failed", error=error))
    said = run.failure()
    assert said.splitlines()[0] == "rank 1 of 2 failed first, in stage train."
    places = [said.index(text) for text in ("ValueError: boom", str(run.dir / "logs"), run.command)]
    assert places == sorted(places)
    assert said.splitlines()[-1].endswith(run.command)


def test_a_mistake_found_on_a_rank_is_told_without_its_traceback(make_run, launch_record):
    error = RankError(0, "UsageError", "lm_head.weight is missing from there.", "Traceback …", "load", 5.0)
    said = make_run(launch=launch_record(status="failed", error=error)).failure()
    assert "lm_head.weight is missing from there." in said and "Traceback" not in said


def test_a_timeout_says_where_each_rank_was(make_run, launch_record):
    why = ["rank 1 never reached all-gather 37."]
    launch = launch_record(status="timeout", timeout_seconds=7.0, explanation=why)
    assert make_run(launch=launch).failure().splitlines()[:2] == ["No end after 7 s, so every rank was ended.", *why]


def test_an_interrupted_run_says_so(make_run, rank_record, launch_record):
    run = make_run(rank_record(0), launch=launch_record(status="interrupted"))
    assert run.failure().startswith("Interrupted, so every rank was ended.")
    assert str(StageInterrupted(run)).startswith("every rank was ended: train-1 · interrupted · 2 ranks")


def test_a_failed_stage_carries_its_run(run):
    assert StageFailed("why", run).run is run
