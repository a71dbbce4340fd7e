"""Dry runs beside real gloo runs of the same jobs, and beside rehearsals. Writes `accuracy.md` beside this file.

    python benchmarks/accuracy.py

The jobs are a spread, not a selection: whoever adds one adds a row to `JOBS`, and nothing is tuned to a row.
"""

import json
import platform
import tempfile
from pathlib import Path
from statistics import median

import torch

from fsdp2_lab.contract.settings import to_argv
from fsdp2_lab.contract.units import MIB
from fsdp2_lab.lab.launcher import execute
from fsdp2_lab.lab.live.progress import Lines
from fsdp2_lab.lab.machine import machine
from fsdp2_lab.predict.dryrun import dryrun_script
from fsdp2_lab.predict.rehearse import rehearse_script

HERE = Path(__file__).parent
TRAIN = HERE.parent / "launch" / "train.py"
RUNS = 2
_LLAMA = {
    "model_type": "llama",
    "vocab_size": 384,
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
_GPT2 = {
    "model_type": "gpt2",
    "n_embd": 128,
    "n_layer": 8,
    "n_head": 4,
    "n_positions": 1024,
    "vocab_size": 384,
    "attn_pdrop": 0.0,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
MODELS = {
    "llama": _LLAMA,
    "llama, tied, 8 layers": _LLAMA | {"tie_word_embeddings": True, "num_hidden_layers": 8},
    "llama, MHA, 12 layers": _LLAMA | {"num_hidden_layers": 12, "hidden_size": 64, "num_key_value_heads": 4},
    "llama, vocabulary 32k": _LLAMA | {"vocab_size": 32000, "num_hidden_layers": 2, "tie_word_embeddings": True},
    "llama, uneven": _LLAMA | {"hidden_size": 104, "intermediate_size": 271, "vocab_size": 391},
    "llama, 512 wide": _LLAMA | {"hidden_size": 512, "intermediate_size": 1408, "num_attention_heads": 8},
    "qwen3": _LLAMA | {"model_type": "qwen3", "head_dim": 32, "num_hidden_layers": 7, "tie_word_embeddings": True},
    "mistral": _LLAMA | {"model_type": "mistral"},
    "gpt2": _GPT2,
}
JOBS = [  # model, ranks, settings that differ from the defaults
    ("llama", 2, {}),
    ("llama, tied, 8 layers", 2, {"checkpointing": False}),
    ("llama, MHA, 12 layers", 3, {"batch": 2, "seq": 256}),
    ("llama, vocabulary 32k", 2, {"batch": 1, "seq": 512}),
    ("llama, uneven", 3, {"reshard": False}),
    ("llama, 512 wide", 2, {"checkpointing": False, "reshard": False, "seq": 64}),
    ("qwen3", 4, {"checkpointing": False}),
    ("qwen3", 2, {"compute_dtype": "bfloat16", "batch": 1, "seq": 64}),
    ("mistral", 4, {"batch": 1, "seq": 1024}),
    ("gpt2", 2, {"checkpointing": False}),
    ("llama", 1, {"batch": 8, "seq": 256}),
]
REPORT = """# How far predictions are from measurements

Step peaks in MiB, the first step's and a later one's. Measured: the lowest and the highest of {runs} real
runs under torchrun, on gloo, over the ranks that hold as much as rank 0, which is the one that is played. The error is
the dry run's against the lowest, in whichever of the two steps it is greater. Made by `python benchmarks/accuracy.py`.

| job | ranks | measured, first | later | later, highest | dry run, later | rehearsed, later | error, % | depths |
|---|---|---|---|---|---|---|---|---|
{rows}

Median of the absolute errors {median:.4f} %, worst {worst:.4f} %. Target: under 0.2 % and under 1 %.

{how}, {cores} cores, torch {torch}, Python {python}.

Where they differ: a CPU's bfloat16 matrix product makes a scratchpad that is not in a dry run; and gloo's worker
thread may hold the copy that it reduced in for a moment longer, so that a peak can be higher by one block's gradients,
on one rank and not on another, in one run and not in the next. That is why the lowest is compared.
"""


def main() -> None:
    rows, errors = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, ranks, settings) in enumerate(JOBS):
            model = Path(folder) / str(number)
            model.mkdir()
            (model / "config.json").write_text(json.dumps(MODELS[name]))
            argv = to_argv({"model": model, **settings})
            row, error = compare(name, ranks, settings, argv)
            rows.append(row)
            errors.append(error)
            print(row, flush=True)
    text = REPORT.format(
        rows="\n".join(rows),
        runs=RUNS,
        median=median(errors),
        worst=max(errors),
        how=machine().how.capitalize(),
        cores=machine().cores,
        torch=torch.__version__,
        python=platform.python_version(),
    )
    (HERE / "accuracy.md").write_text(text, encoding="utf-8")
    print(text)


def compare(name: str, ranks: int, settings: dict, argv: list[str]) -> tuple[str, float]:
    """A row of the table, and the error of the dry run in percent."""
    dry, rehearsed = dryrun_script(TRAIN, ranks, argv, "cpu"), rehearse_script(TRAIN, ranks, argv)
    peaks = [[], []]  # of the first step and of the second
    for _ in range(RUNS):
        run = execute(TRAIN, ranks, [*argv, "--steps", "2"], 600, Lines(), warm=True)
        if run.status != "ok":
            raise SystemExit(run.failure())
        for step, seen in enumerate(peaks):
            seen += [record.steps[step].peak_bytes for record in run.records if _held(record) == _held(run.records[0])]
    measured = [min(seen) for seen in peaks]
    predicted = [dry.step0_peak_bytes, dry.peak_bytes]
    error = max(abs(p / m - 1) for p, m in zip(predicted, measured, strict=True)) * 100
    options = " ".join(to_argv(settings))
    counts = (*measured, max(peaks[1]), dry.peak_bytes, rehearsed.peak_bytes)
    mib = [f"{count / MIB:.3f}" for count in counts]
    depths = ", ".join(map(str, dry.depths_played))
    return f"| {name} {options} | {ranks} | {' | '.join(mib)} | {error:.4f} | {depths} |", error


def _held(record) -> int:
    return record.stages[-1].bytes_after  # after training; before it, uneven shards are padded to the same size


if __name__ == "__main__":
    main()
