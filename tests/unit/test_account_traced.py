"""The closed form against the allocator: every kind of job that it tells apart, on tensors that are really made."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fsdp2_lab.contract.model_source import BUILT_IN
from fsdp2_lab.predict.account import account

SCRIPT = Path(__file__).parent / "scripts" / "traced_steps.py"
TOLERANCE = 0.003  # of the peak; the rest is tensors of a few numbers, and kernels' own buffers

LLAMA = BUILT_IN["byte-llama"] | {"hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4}
LLAMA |= {"num_key_value_heads": 2, "num_hidden_layers": 3}
QWEN3 = LLAMA | {"model_type": "qwen3", "head_dim": 32}
MISTRAL = LLAMA | {"model_type": "mistral", "sliding_window": 64}
GPT2 = {"model_type": "gpt2", "vocab_size": 384, "n_embd": 128, "n_layer": 3, "n_head": 4, "n_positions": 512}
GPT2 |= {"bos_token_id": 1, "eos_token_id": 1}
NO_DROPOUT = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
BF16 = {"compute_dtype": "bfloat16"}
NO_CHECKPOINTING = {"checkpointing": False}

CASES = {
    "llama": (LLAMA, {"seq": 128}),
    "llama, all activations, bfloat16": (LLAMA, {"seq": 128} | BF16 | NO_CHECKPOINTING),
    "llama, all activations, not resharded": (LLAMA, {"ranks": 4, "batch": 1, "reshard": False} | NO_CHECKPOINTING),
    "llama, one rank": (LLAMA, {"ranks": 1, "batch": 2}),
    "llama, uneven shards of bfloat16": (LLAMA, {"ranks": 7, "param_dtype": "bfloat16"} | BF16),
    "llama, uneven and not resharded": (LLAMA, {"ranks": 7, "batch": 1, "seq": 16, "reshard": False}),
    "llama, many logits": (LLAMA | {"vocab_size": 8000}, BF16),
    "llama, large tied root": (LLAMA | {"vocab_size": 8000, "tie_word_embeddings": True}, {"batch": 1}),
    "llama, one block, SGD": (LLAMA | {"num_hidden_layers": 1}, {"optimizer": "sgd"}),
    "llama, AdamW on all at once": (LLAMA, {"batch": 1, "seq": 8, "foreach": True}),
    "llama, fused AdamW": (LLAMA, {"batch": 1, "seq": 8, "fused": True}),
    "llama of six blocks, one group": (LLAMA | {"num_hidden_layers": 6}, {"granularity": "model"}),
    "llama, one group, not resharded": (LLAMA, {"granularity": "model", "reshard": False, "batch": 1, "seq": 16}),
    "llama, one group, tied, uneven, bfloat16": (
        LLAMA | {"tie_word_embeddings": True, "num_hidden_layers": 5},
        {"granularity": "model", "ranks": 7, "batch": 1, "seq": 16} | BF16,
    ),
    "gpt2, one group, all activations": (GPT2 | NO_DROPOUT, {"granularity": "model", "seq": 128} | NO_CHECKPOINTING),
    "qwen3 with biases, all activations": (QWEN3 | {"attention_bias": True}, {"ranks": 3} | NO_CHECKPOINTING),
    "mistral, beyond its window": (MISTRAL, {"seq": 128}),
    "gpt2, bfloat16": (GPT2, {"seq": 128} | BF16),
    "gpt2, one sequence, all activations": (GPT2, {"seq": 128, "batch": 1, "reshard": False} | NO_CHECKPOINTING),
    "gpt2, one sequence, bfloat16": (GPT2, {"seq": 128, "batch": 1} | BF16 | NO_CHECKPOINTING),
    "gpt2, one sequence, recomputed": (GPT2, {"seq": 256, "batch": 1}),
    "gpt2 without dropout": (GPT2 | NO_DROPOUT, {"seq": 128} | NO_CHECKPOINTING),
}


@pytest.fixture(scope="module")
def traced(tmp_path_factory) -> dict[str, tuple[int, int]]:
    """Peaks of step 0 and step 1 for each case, from one process."""
    cases = [{"config": config, "ranks": 2, "batch": 4, "seq": 64} | job for config, job in CASES.values()]
    file = tmp_path_factory.mktemp("traced") / "cases.json"
    file.write_text(json.dumps(cases))
    done = subprocess.run([sys.executable, SCRIPT, file], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_the_account_is_what_the_allocator_sees(name, traced, tmp_path):
    config, job = CASES[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    job = {"ranks": 2, "batch": 4, "seq": 64} | job
    predicted = account(str(tmp_path), job.pop("ranks"), device="cpu", **job)
    assert (predicted.step0_peak_bytes, predicted.peak_bytes) == pytest.approx(traced[name], rel=TOLERANCE)
