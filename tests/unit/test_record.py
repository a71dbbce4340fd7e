"""The contract file: what one side writes, the other reads, or says why not."""

import json
import math

import pytest

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.record import (
    SCHEMA,
    RankError,
    StepRow,
    rank_file,
    read_launch,
    read_record,
    read_records,
    write_launch,
    write_record,
)


def test_a_record_reads_back_as_it_was_written(tmp_path, rank_record):
    error = RankError(1, "ValueError", "boom\nbang", "Traceback …", "train", 1234.5)
    written = rank_record(1, values={"tied": True, "shapes": {"a": [1, 2]}}, error=error, status="failed")
    write_record(tmp_path, written)
    assert read_record(rank_file(tmp_path, 1)) == written


def test_a_launch_reads_back_as_it_was_written(tmp_path, launch_record):
    error = RankError(1, "SIGKILL", "rank 1 was ended by SIGKILL", "")
    written = launch_record(status="failed", exit_codes={"0": None, "1": -9}, error=error)
    write_launch(tmp_path, written)
    assert read_launch(tmp_path) == written


def test_a_run_without_a_launcher_has_no_launch_record(tmp_path):
    assert read_launch(tmp_path) is None


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_a_number_again_after_reading(loss, tmp_path, rank_record):
    write_record(tmp_path, rank_record(steps=[StepRow(0, loss=loss)]))
    back = read_record(rank_file(tmp_path, 0)).steps[0].loss
    assert isinstance(back, float) and (back == loss or (math.isnan(loss) and math.isnan(back)))


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_a_logged_number_that_is_not_finite_is_a_number_again_after_reading(norm, tmp_path, rank_record):
    write_record(tmp_path, rank_record(steps=[StepRow(0, loss=1.0, values={"grad_norm": norm})]))
    back = read_record(rank_file(tmp_path, 0)).steps[0].values["grad_norm"]
    assert isinstance(back, float) and not math.isfinite(back)


def test_a_record_with_a_loss_of_nan_is_json_that_anybody_can_read(tmp_path, rank_record):
    write_record(tmp_path, rank_record(steps=[StepRow(0, loss=math.nan)], values={"a": [math.inf]}))

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    json.loads(rank_file(tmp_path, 0).read_text(), parse_constant=refuse)


def test_records_come_in_the_order_of_ranks(tmp_path, rank_record):
    for rank in (10, 2, 0):
        write_record(tmp_path, rank_record(rank, 11))
    assert [record.rank for record in read_records(tmp_path)] == [0, 2, 10]


@pytest.mark.parametrize(
    "text",
    ["", '{"schema": 1, "ra', "[]", "null", "3", "{}", f'{{"schema": {SCHEMA}}}', "\udcff"],
    ids=["empty", "cut off", "a list", "null", "a number", "no fields", "only a schema", "no text"],
)
def test_what_is_no_whole_record_is_named_in_one_sentence(text, tmp_path):
    path = rank_file(tmp_path, 0)
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(UsageError, match="is not a whole record") as caught:
        read_record(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (SCHEMA - 1, "earlier version .*run the stage again"),
        (SCHEMA + 1, "newer version .*upgrade fsdp2-lab"),
        ("1", "its schema is '1'"),
        (True, "its schema is True"),
        (None, "its schema is None"),
    ],
)
def test_another_schema_is_refused(schema, said, tmp_path, rank_record, is_one_sentence):
    write_record(tmp_path, rank_record())
    path = rank_file(tmp_path, 0)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": schema}))
    with pytest.raises(UsageError, match=said) as caught:
        read_record(path)
    assert is_one_sentence(str(caught.value))


def test_a_launch_of_before_threads_were_recorded_reads_as_it_did(tmp_path, launch_record):
    write_launch(tmp_path, launch_record())
    path = tmp_path / "run.json"
    data = json.loads(path.read_text())
    del data["threads_per_rank"]
    path.write_text(json.dumps(data))
    assert read_launch(tmp_path) == launch_record(threads_per_rank=None)
