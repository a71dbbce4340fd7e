"""A record that is not whole, or of another version, is refused in one sentence, and hides no other run."""

import json
import sys

import pytest
from harness import SCRIPTS

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.record import SCHEMA, read_record, read_records

pytestmark = pytest.mark.fast


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A record as a rank writes it: one launch for all tests here."""
    from harness import Lab

    lab = Lab(tmp_path_factory.mktemp("records"))
    with lab.watch:
        ended = lab.run(SCRIPTS / "faults.py", "well")
        assert ended.code == 0, ended.said
    return lab, ended.run_dir, (ended.run_dir / "rank1.json").read_bytes()


def other_schema(record: bytes, schema) -> bytes:
    return json.dumps(json.loads(record) | {"schema": schema}).encode()


BROKEN = {
    "half": lambda record: record[: len(record) // 2],
    "all but the last byte": lambda record: record.rstrip()[:-1],
    "empty": lambda record: b"",
    "zeros": lambda record: bytes(len(record)),
    "bytes": lambda record: b"\xff\xfe" + record,
    "two records": lambda record: record + record,
    "a list": lambda record: b"[]",
    "a number": lambda record: b"1",
    "deep": lambda record: b"[" * 100_000,
    "older": lambda record: other_schema(record, SCHEMA - 1),
    "newer": lambda record: other_schema(record, SCHEMA + 1),
    "no schema": lambda record: b"{}",
    "stages of numbers": lambda record: json.dumps(json.loads(record) | {"stages": [1]}).encode(),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_record_is_refused_in_one_sentence(how, whole, tmp_path):
    file = tmp_path / "rank1.json"
    file.write_bytes(BROKEN[how](whole[2]))
    with pytest.raises(UsageError) as refused:
        read_record(file)
    message = str(refused.value)
    assert str(file) in message and "\n" not in message and len(message) < 600 and message.endswith("."), message


def test_a_broken_run_is_named_and_the_others_are_listed(whole):
    lab, run_dir, record = whole
    broken = run_dir.parent / "broken-20260101-000000-aaaa"
    broken.mkdir(exist_ok=True)
    for name in ("run.json", "rank0.json"):
        (broken / name).write_bytes(record[: len(record) // 2])
    listed = lab.end(lab.start([sys.executable, "-m", "fsdp2_lab", "runs", "--json"]), 60)
    assert listed.code == 0, listed.said
    status = {row["id"]: row["status"] for row in json.loads(listed.stdout)}
    assert status == {run_dir.name: "ok", broken.name: "unreadable"}
    shown = lab.end(lab.start([sys.executable, "-m", "fsdp2_lab", "runs", broken.name]), 60)
    assert shown.code == 2 and shown.one_sentence, shown.said
    assert len(read_records(run_dir)) == 2
