"""The table of peers is that of the rows that were run; a peer that is not here is said aloud."""

import importlib.util
import json
import sys

import pytest

from fsdp2_lab.contract.errors import UsageError


@pytest.fixture(scope="module")
def peers(checkout):
    spec = importlib.util.spec_from_file_location("peers", checkout / "benchmarks" / "peers.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(spec.origin.rpartition("/")[0])  # as for a script
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows(peers):
    return json.loads(peers.ROWS.read_text(encoding="utf-8"))


def test_the_table_is_what_the_rows_give(peers, rows):
    assert peers.TABLE.read_text(encoding="utf-8") == peers.render(rows)


def test_every_row_says_how_it_was_made(peers, rows):
    names = {*peers.OURS, *(peer.name for peer in peers.PEERS)}
    assert {row["peer"] for row in rows} == names
    assert all(row["bytes"] > 0 and row["call"] and row["version"] and row["date"] for row in rows)


def test_closed_form_and_dry_run_of_the_measured_job_are_the_measurement(peers, rows):
    found = {peers.key(row): row["bytes"] for row in rows}
    for checkpointing in (False, True):
        truth = found["byte-llama", checkpointing, "measured (CPU)"]
        for name in ("fsdp2-lab dryrun", "fsdp2-lab account"):
            assert found["byte-llama", checkpointing, name] == pytest.approx(truth, rel=0.01)


@pytest.mark.parametrize("package", ["no_such_package_anywhere", ""])
def test_a_peer_that_is_not_installed_is_named_in_one_sentence(peers, package, is_one_sentence):
    peer = peers.PEERS[0]._replace(package=package)
    with pytest.raises(UsageError, match="is not installed; ") as caught:
        peers.ask(peer, peers.JOBS[1], True, [sys.executable], cookbook=None)
    assert is_one_sentence(str(caught.value))


def test_a_peer_that_fails_is_told_with_its_last_words(peers, tmp_path, monkeypatch):
    (tmp_path / "peer_runs").mkdir()
    (tmp_path / "peer_runs" / "mem_tracker.py").write_text("raise SystemExit('the name has moved')")
    monkeypatch.setattr(peers, "HERE", tmp_path)
    with pytest.raises(UsageError, match="the name has moved"):
        peers.ask(peers.PEERS[0], peers.JOBS[1], True, [sys.executable], cookbook=None)
