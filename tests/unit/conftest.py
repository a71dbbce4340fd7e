"""Hand-made records: what ranks would have written, without a launch."""

import pytest

from fsdp2_lab.contract.record import MEASURED_CPU, LaunchRecord, RankRecord, StageRow, StepRow

MIB = 2**20


@pytest.fixture
def rank_record():
    """Makes the record of one rank: two stages, and four steps of which the first two were metered."""

    def make(rank: int = 0, world_size: int = 2, **changes) -> RankRecord:
        steps = [
            StepRow(0, "train", loss=6.0, tokens=512, seconds=9.0 + rank, peak_bytes=(40 + rank) * MIB, timed=False),
            StepRow(1, "train", loss=5.0, tokens=512, seconds=8.0 + rank, peak_bytes=(30 + rank) * MIB, timed=False),
            StepRow(2, "train", loss=4.0, tokens=512, seconds=1.0 + rank),
            StepRow(3, "train", loss=3.0, tokens=512, seconds=3.0 - rank),
        ]
        stages = [
            StageRow("mesh", 0.5, 0, 0, MIB, None, 200 * MIB, 210 * MIB),
            StageRow("train", 20.0 + rank, 6 * MIB, 18 * MIB, 46 * MIB, None, 300 * MIB, 310 * MIB),
        ]
        values = dict(
            rank=rank,
            world_size=world_size,
            local_rank=rank,
            host="here",
            pid=100 + rank,
            device="cpu",
            how=MEASURED_CPU,
            started_unix_seconds=1000.0,
            versions={"torch": "2.13.0"},
            argv=["launch/train.py", "--steps", "4"],
            settings={"steps": 4},
            status="ok",
            stages=stages,
            steps=steps,
        )
        return RankRecord(**(values | changes))

    return make


@pytest.fixture
def launch_record():
    """Makes the launcher's part of a run that went well."""

    def make(run_id: str = "train-1", **changes) -> LaunchRecord:
        values = dict(
            id=run_id,
            script="launch/train.py",
            ranks=2,
            how=MEASURED_CPU,
            command="torchrun --standalone --nproc_per_node=2 launch/train.py --steps 4",
            started_unix_seconds=1000.0,
            timeout_seconds=600.0,
            status="ok",
            seconds=25.0,
            exit_codes={"0": 0, "1": 0},
            rss_peak_bytes={"0": 310 * MIB, "1": 311 * MIB},
        )
        return LaunchRecord(**(values | changes))

    return make
