"""The check for a CUDA machine, as far as it goes without one: arguments, choice of cases, budgets, file and table."""

import json
import subprocess
import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from types import SimpleNamespace

import pytest

from fsdp2_lab.contract.errors import LabError

GIB = 2**30
DEVICE = {"device": "NVIDIA H200 (MIG 1g)", "total_bytes": 139 * GIB, "versions": {"torch": "2.13.0", "cuda": "13.0"}}


@pytest.fixture(scope="module")
def check(checkout):
    spec = spec_from_file_location("gpu_check", checkout / "benchmarks" / "gpu_check.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rehearse(case: dict, _seconds: float) -> dict:
    """What a rehearsal would say that meets its account to the byte."""
    if case["ranks"] == 8:
        raise LabError("OutOfMemoryError: no room")
    allocated = case["predicted_bytes"]
    found = {"allocated_step0_bytes": case["predicted_step0_bytes"], "allocated_bytes": allocated}
    return found | {"reserved_bytes": allocated + GIB, "used_bytes": allocated + 3 * GIB // 2, "step_seconds": 0.5}


def dryrun(case: dict, _seconds: float) -> dict:
    if case["ranks"] == 64:
        raise LabError("took more than 9 s")
    return {"dry_run_bytes": case["predicted_bytes"] * 101 // 100, "dry_run_step0_bytes": 1}


@pytest.fixture
def done(check):
    todo = check.cases(check.MODELS[:2], check.RANKS, DEVICE["total_bytes"])
    return list(check.run(todo, rehearse, dryrun, seconds=60, case_seconds=9))


def test_without_a_gpu_it_says_so_with_a_code_of_its_own(checkout):
    ended = subprocess.run([sys.executable, checkout / "benchmarks" / "gpu_check.py"], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "skipped: no GPU.\n", "")


@pytest.mark.parametrize(
    "words", [["--ranks", "0"], ["--ranks", "two"], ["--seconds", "-1"], ["--model", "gpt2"], ["--out", __file__]]
)
def test_bad_arguments_are_refused_before_torch_is_imported(checkout, words):
    line = f"import gpu_check, sys\ntry: gpu_check.main({words!r})\nexcept SystemExit as left: print(left.code, "
    line += "'torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", line], cwd=checkout / "benchmarks", capture_output=True, text=True)
    assert ended.stdout == "2 False\n" and words[0] in ended.stderr


def test_what_does_not_fit_by_account_is_skipped_with_the_reason(check):
    def skipped(gib):
        todo = check.cases(check.MODELS, check.RANKS, gib * GIB)
        assert len(todo) == 12
        assert all("GiB of" in case["why"] for case in todo if "status" in case)
        return {(case["model"], case["ranks"]) for case in todo if "status" in case}

    assert skipped(139) == {("llama-3.1-8b", 1)}
    assert ("llama-3.1-8b", 8) in skipped(24) and ("llama-3.1-8b", 64) not in skipped(24)


def test_one_failing_case_does_not_stop_the_others(done):
    status = {(case["model"], case["ranks"]): case["status"] for case in done}
    assert [status["llama-3.1-8b", ranks] for ranks in (1, 4, 8, 64)] == ["skipped", "ok", "failed", "ok"]
    assert [case["why"] for case in done if case["status"] == "failed"] == ["OutOfMemoryError: no room"] * 2


def test_when_time_runs_out_the_rest_is_skipped_aloud(check):
    todo = check.cases(check.MODELS[:1], (4, 64), DEVICE["total_bytes"])
    slow = lambda case, seconds: time.sleep(0.3) or rehearse(case, seconds)  # noqa: E731
    first, second = check.run(todo, slow, dryrun, seconds=check.SHORTEST_SECONDS + 0.2, case_seconds=9)
    assert first["status"] == "ok" and second["status"] == "skipped" and "--seconds" in second["why"]


def test_the_article_s_o_is_what_is_used_beyond_its_own_terms(done):
    case = next(case for case in done if case["status"] == "ok")
    assert case["cached_bytes"] == GIB and case["outside_bytes"] == GIB // 2
    parts = case["overhead_bytes"] + case["article"]["state_bytes"] + case["article"]["boundary_bytes"]
    assert parts == case["used_bytes"]


def test_the_file_is_named_after_the_device_and_holds_every_case(check, done, tmp_path):
    path = check.write(tmp_path / "results", DEVICE, done)
    assert path.name == "nvidia-h200-mig-1g.json"
    told = json.loads(path.read_text())
    assert told["schema"] == 1 and told["device"] == DEVICE["device"] and told["date"]
    assert told["cases"] == done and len(done) == 8


def test_the_table_has_a_line_for_every_case(check, done):
    lines = check.table(done).splitlines()
    assert len(lines) == 1 + len(done)
    by_case = {line.split("  ")[0].strip(): line for line in lines}
    assert "+0.00 %" in by_case["llama-3.2-1b, 4"] and "+1.00 %" in by_case["llama-3.2-1b, 4"]
    assert "–" in by_case["llama-3.2-1b, 64"]  # its dry run failed
    assert "skipped: needs about" in by_case["llama-3.1-8b, 1"] and "failed: OutOf" in by_case["llama-3.1-8b, 8"]


def test_the_exit_code_tells_of_a_failed_case(check, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(check, "ask_gpu", lambda case, seconds, _: rehearse(case, seconds) if case else DEVICE)
    monkeypatch.setattr(check, "dry_run", lambda case, seconds, _: dryrun(case, seconds))
    asked = SimpleNamespace(model=["llama-3.2-1b"], ranks=[4], seconds=60, case_seconds=9, out=tmp_path)
    assert check.check(asked, {}) == 0
    asked.ranks = [4, 8]
    assert check.check(asked, {}) == 1
    assert "NCCL's buffers are in none of it" in capsys.readouterr().out


def test_a_case_s_process_that_dies_or_lasts_is_told(check):
    with pytest.raises(LabError, match="ended with code 7"):
        check._answer([sys.executable, "-c", "raise SystemExit(7)"], 9, {})
    with pytest.raises(LabError, match="took more than 0 s"):
        check._answer([sys.executable, "-c", "import time; time.sleep(9)"], 0.2, {})
