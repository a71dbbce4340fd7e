"""A case of the GPU check on a CPU: all but the GPU's own counters, which stand-ins answer."""

import importlib.util
import json

import pytest
import torch

from fsdp2_lab.contract.record import MEASURED_CPU

CASE = {"model": "byte-llama", "ranks": 8, "batch": 1, "seq": 64, "checkpointing": True}


@pytest.fixture
def check(checkout, monkeypatch):
    spec = importlib.util.spec_from_file_location("gpu_check_case", checkout / "benchmarks" / "gpu_check_case.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    free = iter([900, 900, *range(800, 300, -100), 700])  # its own context, before, then what samples find
    last = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (last.append(next(free, 700)) or last[-1], 1000))
    return module


def test_a_rehearsal_tells_its_peaks_and_the_most_that_was_used(check, monkeypatch, capsys):
    monkeypatch.setattr(check, "MEASURED_CUDA", MEASURED_CPU)
    monkeypatch.setattr("sys.argv", ["gpu_check_case.py", json.dumps(CASE)])
    check.main()
    told = json.loads(capsys.readouterr().out)
    assert told["allocated_bytes"] > told["allocated_step0_bytes"] > 0 and told["step_seconds"] > 0
    assert told["used_bytes"] == 500 and told["reserved_bytes"] is None  # a CPU's allocator reserves nothing


def test_a_rehearsal_that_did_not_use_the_gpu_is_refused(check, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["gpu_check_case.py", json.dumps(CASE)])
    check.main()
    assert json.loads(capsys.readouterr().out) == {"error": "the rehearsal is measured (CPU), not measured (CUDA)."}
