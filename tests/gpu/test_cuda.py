"""The program on CUDA: NCCL, bfloat16 compute, the caching allocator's numbers."""

from pathlib import Path

import pytest
import torch

from fsdp2_lab.lab.launcher import execute
from fsdp2_lab.lab.live.progress import Progress
from fsdp2_lab.predict.dryrun import dryrun_script
from fsdp2_lab.predict.rehearse import rehearse_script
from fsdp2_lab.show import overhead, who_holds_what

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="skipped: no GPU, so NCCL and the CUDA meters stay unmeasured here"
)
TRAIN = Path(__file__).resolve().parents[2] / "launch" / "train.py"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FSDP2_LAB_HOME", str(tmp_path_factory.mktemp("home")))
        yield execute(TRAIN, None, ["--steps", "4", "--weights", "random"], 600, Progress(), snapshot=True)


def test_the_run_is_labelled_measured_cuda(run):
    assert run.status == "ok", run.failure()
    assert run.how == "measured (CUDA)"
    assert run.records[0].settings["compute_dtype"] == "bfloat16"


def test_bytes_are_the_caching_allocators(run):
    parameters = run.noted("parameters")[0]
    for row in run.stage("load"):
        assert row.bytes_after == pytest.approx(4 * parameters / run.ranks, rel=0.05)
        assert row.reserved_bytes >= row.peak_bytes >= row.bytes_after
    assert all(step.peak_bytes for record in run.records for step in record.steps)
    assert all(step.timed is (step.step > 1) for record in run.records for step in record.steps)


def test_what_lies_outside_the_allocator_is_recorded_and_named(run):
    for row in run.stage("train"):
        assert row.device_used_bytes > row.reserved_after_bytes > 0
    parts = overhead(run)
    assert (parts >= 0).all().all()


def test_the_allocators_history_is_exported(run):
    for rank in range(run.ranks):
        assert (run.dir / f"rank{rank}_snapshot.pickle").stat().st_size > 1000


def test_a_step_has_its_units_spans(run):
    picture = who_holds_what(run)
    assert picture.units["unit"].iloc[0] == "root" and len(picture.units) == 5
    assert set(picture.units["gathered"]) == {"2"}
    assert set(picture.units["reduce-scatters"]) == {"1" if run.ranks > 1 else "0"}


def test_a_rehearsal_is_the_caching_allocators_and_near_the_dry_run():
    argv = ["--batch", "8", "--seq", "1024", "--weights", "random"]
    one, eight = (rehearse_script(TRAIN, ranks, argv) for ranks in (1, 8))
    dry = dryrun_script(TRAIN, 8, argv, "cuda")
    assert eight.how == "rehearsed (CUDA)" and eight.peak_bytes < one.peak_bytes
    # cuBLAS takes its workspaces, tens of MiB, from the same allocator; a dry run has none.
    assert eight.peak_bytes == pytest.approx(dry.peak_bytes, abs=128 * 2**20)
