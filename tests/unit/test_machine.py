"""How many ranks a machine gets, and how many it refuses."""

import pytest

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.lab import launcher
from fsdp2_lab.lab.live.progress import Progress
from fsdp2_lab.lab.machine import Machine, free_bytes


@pytest.mark.parametrize("ranks", [0, -1, True, 2.0, "2", None])
def test_ranks_are_a_whole_number_from_one_up(ranks, is_one_sentence):
    with pytest.raises(UsageError, match="whole number") as caught:
        Machine(gpus=0, cores=4).check_ranks(ranks)
    assert is_one_sentence(str(caught.value))


def test_a_gpu_takes_one_rank(is_one_sentence):
    assert Machine(gpus=2, cores=1).check_ranks(2) == 2
    with pytest.raises(UsageError, match="2 GPUs") as caught:
        Machine(gpus=2, cores=64).check_ranks(3)
    assert is_one_sentence(str(caught.value))
    with pytest.raises(UsageError, match="1 GPU,"):
        Machine(gpus=1, cores=64).check_ranks(2)


def test_ranks_on_a_cpu_share_its_cores_up_to_a_limit():
    assert Machine(gpus=0, cores=1).check_ranks(8) == 8
    assert Machine(gpus=0, cores=16).check_ranks(64) == 64
    with pytest.raises(UsageError, match="16 cores"):
        Machine(gpus=0, cores=16).check_ranks(65)


def test_defaults_come_from_the_machine_and_are_said():
    cpu, gpus = Machine(gpus=0, cores=4), Machine(gpus=4, cores=32)
    assert (cpu.default_ranks, cpu.backend, cpu.how) == (2, "gloo", "measured (CPU)")
    assert (gpus.default_ranks, gpus.backend, gpus.how) == (4, "nccl", "measured (CUDA)")
    assert "2 ranks" in cpu.describe() and "gloo" in cpu.describe()
    assert "4 ranks" in gpus.describe() and "NCCL" in gpus.describe()


@pytest.mark.parametrize(("cores", "ranks", "threads"), [(8, 2, 4), (8, 3, 2), (2, 4, 1)])
def test_a_rank_gets_its_share_of_the_cores(cores, ranks, threads):
    assert Machine(gpus=0, cores=cores).threads_per_rank(ranks) == threads


def test_more_ranks_than_gpus_are_refused_before_anything_starts(home, tmp_path, monkeypatch):
    script = tmp_path / "own.py"
    script.write_text("print('never')")
    monkeypatch.setattr(launcher, "machine", lambda: Machine(gpus=1, cores=8))
    with pytest.raises(UsageError, match="1 GPU"):
        launcher.execute(script, 2, [], 60.0, Progress())
    assert list(home.iterdir()) == []


def test_free_memory_is_a_containers_where_it_has_a_limit(tmp_path):
    machine_wide = free_bytes(tmp_path)
    assert machine_wide > 2**20
    (tmp_path / "memory.current").write_text("1048576\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert free_bytes(tmp_path) > 2**20
    (tmp_path / "memory.max").write_text("3145728\n")
    assert free_bytes(tmp_path) == 2 * 2**20
    (tmp_path / "memory.max").write_text("0\n")
    assert free_bytes(tmp_path) == 0
