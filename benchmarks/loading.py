"""Load a checkpoint of 1.1 GiB from rank 0, with torch's reader and by slices, in turns; write benchmarks/loading.md.

    python benchmarks/loading.py

Linux only. Forty-eight launches on warm ranks, 3 GiB of memory and 1.1 GiB of disk at most; keep the machine quiet.
"""

import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from fsdp2_lab.contract.safetensors_files import safetensors_files  # noqa: E402
from fsdp2_lab.contract.units import GIB, MIB  # noqa: E402
from fsdp2_lab.lab import warm  # noqa: E402
from fsdp2_lab.lab.launcher import execute  # noqa: E402
from fsdp2_lab.lab.live.progress import Progress  # noqa: E402

WAYS = {"broadcast": "rank 0 reads, all receive", "stock": "torch's reader", "slices": "load_slices"}
RANKS = (2, 4)
ROUNDS = {"in the page cache": 5, "on the disk": 3}
CONFIG = {
    "model_type": "llama",
    "vocab_size": 8192,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "tie_word_embeddings": False,
}
REPORT = """# Loading: from rank 0, and by slices

`python benchmarks/loading.py` wrote this. A Llama of {parameters:,} parameters, float32, {gib:.2f} GiB in {files}
safetensors files; its largest tensor has {largest:.0f} MiB. {how}, gloo, {cores} cores, torch {torch}. The ways take
turns. Medians over {rounds} rounds with the files in the page cache, least and most in brackets; *disk* is the median
over {cold_rounds} rounds of which each began with the files' pages dropped. Sizes are in MiB. Peaks are above what a
rank held just before, and count the pages of mapped files; *anonymous*, sampled every 10 ms, does not.

| ranks | way | seconds | disk, s | peak, rank 0 | others | sum | anonymous, rank 0 | above own shards | rank 0 reads |
|---|---|---|---|---|---|---|---|---|---|
{rows}

*Above own shards* is the highest rank's peak less its shards. `load_slices` promises one largest tensor at most,
{largest:.0f} MiB: kept in {kept} of {promised} launches. From rank 0 loading takes {faster}, medians of paired ratios.
In every one of the {launches} launches each rank compared its shards with the stored rows: {same}.
"""


@dataclass
class Load:
    """One launch, all ranks."""

    seconds: float
    peaks: list[int]
    anonymous: list[int]
    read: list[int]
    own: list[int]
    same: bool
    how: str

    @property
    def above(self) -> int:
        return max(peak - own for peak, own in zip(self.peaks, self.own, strict=True))


def main() -> None:
    with tempfile.TemporaryDirectory(dir=ROOT) as home:
        folder = Path(home) / "model"
        parameters, largest = write_model(folder)
        loads = {}
        for place, rounds in ROUNDS.items():
            for ranks in RANKS:
                for turn in range(rounds):
                    for way in list(WAYS) if turn % 2 else reversed(WAYS):
                        if place == "on the disk":
                            drop_pages(folder)
                        load = one_load(way, folder, ranks)
                        loads.setdefault((place, ranks, way), []).append(load)
                        print(f"{place}, {ranks} ranks, {WAYS[way]}: {load.seconds:.2f} s", flush=True)
        warm.stop()
        files = safetensors_files(folder)
        text = report(loads, parameters, largest, sum(file.stat().st_size for file in files), len(files))
    (ROOT / "benchmarks" / "loading.md").write_text(text, encoding="utf-8")
    print(text)


def write_model(folder: Path) -> tuple[int, int]:
    """Random weights; the number of parameters and the largest tensor's bytes."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**CONFIG))
    model.save_pretrained(folder, max_shard_size="400MB")
    sizes = [parameter.nbytes for parameter in model.parameters()]
    return sum(sizes) // 4, max(sizes)


def one_load(way: str, folder: Path, ranks: int) -> Load:
    run = execute(ROOT / "benchmarks" / "loading_ranks.py", ranks, [way, str(folder)], 300, Progress(), warm=None)
    if run.status != "ok":
        sys.exit(run.failure())
    noted = {name: list(run.noted(name).values()) for name in run.records[0].values}
    load = Load(
        seconds=max(noted["seconds"]),
        peaks=noted["peak_bytes"],
        anonymous=noted["anonymous_bytes"],
        read=noted["bytes_read"],
        own=noted["own_bytes"],
        same=all(noted["same_bits"]),
        how=run.how,
    )
    shutil.rmtree(run.dir)
    return load


def drop_pages(folder: Path) -> None:
    """Ask the kernel to forget what it has read of the files."""
    for file in safetensors_files(folder):
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    time.sleep(0.5)


def report(loads: dict, parameters: int, largest: int, size: int, files: int) -> str:
    cached, disk = ROUNDS
    rows, kept = [], []
    for ranks in RANKS:
        for way, name in WAYS.items():
            some = loads[cached, ranks, way]
            seconds = [load.seconds for load in some]
            sizes = [
                median(load.peaks[0] for load in some),
                median(max(load.peaks[1:]) for load in some),
                median(sum(load.peaks) for load in some),
                median(load.anonymous[0] for load in some),
                median(load.above for load in some),
                some[0].read[0],
            ]
            columns = [
                str(ranks),
                name,
                f"{median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})",
                f"{median(load.seconds for load in loads[disk, ranks, way]):.2f}",
                *(f"{each / MIB:,.0f}" for each in sizes),
            ]
            rows.append(f"| {' | '.join(columns)} |")
            kept += [load.above <= largest for load in some if way == "slices"]
    every = [load for some in loads.values() for load in some]
    return REPORT.format(
        parameters=parameters,
        gib=size / GIB,
        files=files,
        largest=largest / MIB,
        how=every[0].how,
        cores=os.cpu_count(),
        torch=version("torch"),
        rounds=ROUNDS[cached],
        cold_rounds=ROUNDS[disk],
        rows="\n".join(rows),
        kept=sum(kept),
        promised=len(kept),
        faster=" and ".join(f"{ratio(loads, cached, ranks):.1f} times as long on {ranks} ranks" for ranks in RANKS),
        launches=len(every),
        same="equal to the bit" if all(load.same for load in every) else "NOT EQUAL",
    )


def ratio(loads: dict, place: str, ranks: int) -> float:
    """How much longer loading from rank 0 took than by slices, round by round."""
    pairs = zip(loads[place, ranks, "broadcast"], loads[place, ranks, "slices"], strict=True)
    return median(one.seconds / other.seconds for one, other in pairs)


if __name__ == "__main__":
    main()
