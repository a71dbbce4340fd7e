"""Save a training state on 1 to 4 ranks, go on from each on 1 to 4 ranks, and write benchmarks/resume.md.

    python benchmarks/resume.py

Twenty launches on warm ranks, of 8 or 16 steps each.
"""

import json
import shutil
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from fsdp2_lab.contract.saved_state import read_state  # noqa: E402
from fsdp2_lab.lab import warm  # noqa: E402
from fsdp2_lab.lab.launcher import execute  # noqa: E402
from fsdp2_lab.lab.live.progress import Progress  # noqa: E402

RANKS = (1, 2, 3, 4)
GLOBAL_BATCH, SEQ, STEPS, SAVED = 12, 64, 16, 8
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 384,
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "tie_word_embeddings": True,
}
REPORT = """# Resuming on another number of ranks

`python benchmarks/resume.py` wrote this. Llama of {parameters:,} parameters with tied embeddings, float32, AdamW, a
global batch of {batch} x {seq} tokens; saved after step {saved} of {steps}. {how}, gloo, torch {torch}. Of each run
that went on: the largest relative difference of its losses, steps {saved} to {last}, to a run of {steps} steps on one
rank that was never stopped.

| ranks that saved | {heads} |
|---|{rule}|
{rows}

{equal} of {pairs} runs on as many ranks as saved are equal to that run to the bit, in every loss and in every tensor
of the state after step {steps}. All {all} are within 1e-5: {within}. A state has {mib:.2f} MiB on the disk, which is
{each:.2f} bytes a parameter. The {launches} launches took {seconds:.0f} s.
"""


def main() -> None:
    began, launches = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "model").mkdir()
        (home / "model" / "config.json").write_text(json.dumps(CONFIG))

        def train(ranks: int, **settings):
            nonlocal launches
            launches += 1
            common = {"model": home / "model", "batch": GLOBAL_BATCH // ranks, "seq": SEQ, "steps": STEPS, "lr": 1e-3}
            settings = common | {"compute_dtype": "float32"} | settings
            argv = [text for name, value in settings.items() for text in (f"--{name.replace('_', '-')}", str(value))]
            run = execute(ROOT / "launch" / "train.py", ranks, argv, 120, Progress(), warm=None)
            if run.status != "ok":
                sys.exit(run.failure())
            print(f"{ranks} ranks, {settings.get('resume', 'from the beginning')}: {run.outcome}", flush=True)
            kept = run.losses, run.how, run.noted("parameters")[0]
            shutil.rmtree(run.dir)
            return kept

        whole = {ranks: train(ranks, save_every=SAVED, save_to=home / f"{ranks}") for ranks in RANKS}
        differences, equal = {}, 0
        for writers in RANKS:
            for ranks in RANKS:
                target = home / f"{writers}-{ranks}"
                resumed, *_ = train(ranks, resume=home / f"{writers}" / f"step-{SAVED}", save_every=8, save_to=target)
                differences[writers, ranks] = largest(whole[1][0][SAVED:], resumed)
                if writers == ranks:
                    last = f"step-{STEPS}"
                    same = resumed == whole[ranks][0][SAVED:] and same_tensors(home / f"{ranks}" / last, target / last)
                    equal += same
        size = sum(read_state(home / "2" / f"step-{SAVED}").files.values())
        warm.stop()
        _, how, parameters = whole[1]
    rows = [
        f"| {writers} | " + " | ".join(f"{differences[writers, ranks]:.0e}" for ranks in RANKS) + " |"
        for writers in RANKS
    ]
    text = REPORT.format(
        parameters=parameters,
        batch=GLOBAL_BATCH,
        seq=SEQ,
        saved=SAVED,
        steps=STEPS,
        last=STEPS - 1,
        how=how,
        torch=version("torch"),
        heads=" | ".join(f"resumed on {ranks}" for ranks in RANKS),
        rule="---|" * (len(RANKS) - 1) + "---",
        rows="\n".join(rows),
        equal=equal,
        pairs=len(RANKS),
        all=len(differences),
        within="yes" if max(differences.values()) < 1e-5 else "NO",
        mib=size / 2**20,
        each=size / parameters,
        launches=launches,
        seconds=time.monotonic() - began,
    )
    (ROOT / "benchmarks" / "resume.md").write_text(text, encoding="utf-8")
    print(text)


def largest(one: list[float], other: list[float]) -> float:
    """The largest relative difference of two curves."""
    return max(abs(a - b) / a for a, b in zip(one, other, strict=True))


def same_tensors(one: Path, other: Path) -> bool:
    """Whether two states hold the same tensors in the same files, to the bit."""
    from safetensors.torch import load_file

    pairs = [[load_file(folder / name) for folder in (one, other)] for name in read_state(one).files]
    return all(a.keys() == b.keys() and all(a[name].equal(b[name]) for name in a) for a, b in pairs)


if __name__ == "__main__":
    main()
