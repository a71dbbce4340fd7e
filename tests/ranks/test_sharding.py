"""What chapter 05 states: collectives by unit, dtypes, weights that a step changes, and rows and padding by rank."""

import json
import subprocess
import sys

import pytest

from fsdp2_lab.contract.record import read_records
from fsdp2_lab.learn import q05g
from fsdp2_lab.show.row_shards import rows_by_rank

SMALL = ["--steps", 4]
BLOCKS, MATRICES = 4, 7  # of byte-llama, and of one of its blocks
PARAMETERS = 3_148_032
ROWS = {"embed_tokens": 384, "q_proj": 256, "k_proj": 128, "gate_proj": 704, "input_layernorm": 256, "lm_head": 384}


def launched(project, stage: str, *argv, ranks: int = 2) -> list:
    before = project.runs
    ended = project.run(f"launch/{stage}.py", *argv, ranks=ranks)
    assert ended.code == 0, ended.stderr
    (folder,) = set(project.runs) - set(before)
    return read_records(folder)


@pytest.fixture(scope="module")
def ways(project) -> dict[str, list]:
    """Two ranks' records of the same training under every way of sharding."""
    asked = {"whole": [], "layers": [], "linears": [], "kept_root": []}
    found = {stage: launched(project, stage, *SMALL, *argv) for stage, argv in asked.items()}
    return found | {"not resharded": launched(project, "layers", *SMALL, "--reshard", "false")}


COUNTS = {  # units, and how many all-gathers the option saves
    "whole": (1, 0),
    "layers": (BLOCKS + 1, 0),
    "linears": (BLOCKS * MATRICES + 1, 0),
    "kept_root": (BLOCKS + 1, 1),
    "not resharded": (BLOCKS + 1, BLOCKS + 1),
}


@pytest.mark.parametrize("way", COUNTS)
def test_a_unit_is_gathered_twice_and_reduced_once(ways, way):
    units, saved = COUNTS[way]
    for record in ways[way]:
        assert record.values["collectives"] == {"all_gather": 2 * units - saved, "reduce_scatter": units}


def test_all_ways_learn_the_same(ways):
    losses = [step.loss for step in ways["layers"][0].steps]
    assert losses[-1] < losses[0]
    for records in ways.values():
        assert [step.loss for step in records[0].steps] == pytest.approx(losses, rel=1e-5)


def test_smaller_units_peak_lower(ways):
    peaks = [max(record.steps[1].peak_bytes for record in ways[way]) for way in ("whole", "layers", "linears")]
    assert peaks[0] > 1.1 * peaks[1] > 1.1**2 * peaks[2]
    whole = ways["whole"][0].steps[1].terms
    assert whole["reduce_scatter"] == pytest.approx(2 * 4 * PARAMETERS, rel=0.01)  # FSDP2's input and gloo's copy


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_each_rank_holds_the_rows_that_the_rule_says_and_as_many_bytes_as_rank_0(project, ranks):
    records = launched(project, "allocate", ranks=ranks)
    for name, rows in ROWS.items():
        held = [
            next(shape[0] for key, shape in record.values["shards"].items() if f".{name}." in f".{key}")
            for record in records
        ]
        assert held == rows_by_rank(rows, ranks), name
    assert len({record.stages[-1].bytes_after for record in records}) == 1
    assert records[0].values["parameter"]["placements"] == "(Shard(dim=0),)"


def test_the_rule_is_that_of_fully_shard_for_any_rows_and_ranks(scripts):
    done = subprocess.run([sys.executable, scripts / "local_rows.py"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for ranks, by_rows in json.loads(done.stdout.splitlines()[-1]).items():
        for rows, held in by_rows.items():
            assert held == rows_by_rank(int(rows), int(ranks)), (rows, ranks)


DTYPES = ("shard", "gathered copy", "activation", "its gradient", "reduced gradient", "exp_avg", "exp_avg_sq")


@pytest.mark.parametrize("shards", ["float32", "bfloat16"])
def test_what_remembers_has_the_shards_dtype_and_what_computes_the_policys(project, shards):
    (first, _) = launched(project, "one_step", "--param-dtype", shards)
    kept, computed = f"torch.{shards}", "torch.bfloat16"
    assert [first.values["dtypes"][part] for part in DTYPES] == [kept, computed, computed, computed, kept, kept, kept]
    changed = first.values["changed"]
    assert changed > 0.99 if shards == "float32" else 0.05 < changed < 0.25


def test_an_early_optimizer_changes_nothing_and_says_nothing(project):
    assert [record.values["changed"] for record in launched(project, "early_optimizer")] == [0, 0]


def test_the_mended_stage_passes_its_check(project, checkout, tmp_path):
    text = (checkout / "launch" / "early_optimizer.py").read_text(encoding="utf-8")
    line = "optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr)\n"
    early, late = text.split(line)
    mended = tmp_path / "mended.py"
    mended.write_text(early + late.replace("load(model)\n", "load(model)\n" + line), encoding="utf-8")
    assert q05g.check(project.run(mended).run).right


def test_the_root_before_its_blocks_is_refused(project):
    assert launched(project, "top_down")[0].values["said"].startswith("RuntimeError: Cannot concatenate")
    assert launched(project, "top_down", ranks=1)[0].values["said"] == "nothing"
