"""llm-analysis on a job with ZeRO-3: its own shape for a model that it knows by name, else one in the same manner.

A job as JSON comes as the first argument; a row as JSON is printed.
"""

import json
import sys
from contextlib import redirect_stdout
from importlib.metadata import version

from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis
from llm_analysis.config import (
    DtypeConfig,
    ModelConfig,
    ParallelismConfig,
    get_gpu_config_by_name,
    get_model_config_by_name,
)

KNOWN = {"llama-2-7b": "NousResearch_Llama-2-7b-hf"}


def shape(job: dict) -> ModelConfig:
    """Two matrices of an MLP stand for three there, so its inner width is one and a half of a gated one's."""
    if job["model"] in KNOWN:
        return get_model_config_by_name(KNOWN[job["model"]])
    config = job["config"]
    inner = config["intermediate_size"] * 3 // 2
    return ModelConfig(
        name=job["model"],
        num_layers=config["num_hidden_layers"],
        n_head=config["num_attention_heads"],
        hidden_dim=config["hidden_size"],
        vocab_size=config["vocab_size"],
        max_seq_len=config["max_position_embeddings"],
        num_key_value_heads=config["num_key_value_heads"],
        ffn_embed_dim=inner,
        expansion_ratio=inner / config["hidden_size"],
    )


job = json.loads(sys.argv[1])
recomputation = ActivationRecomputation.FULL if job["checkpointing"] else ActivationRecomputation.NONE
with redirect_stdout(sys.stderr):  # it logs
    analysis = LLMAnalysis(
        shape(job), get_gpu_config_by_name("a100-sxm-80gb"), DtypeConfig(), ParallelismConfig(dp_size=job["ranks"])
    )
    said = analysis.training(
        batch_size_per_gpu=job["batch"],
        seq_len=job["seq"],
        activation_recomputation=recomputation,
        ds_zero=DSZeRO.STAGE_3,
    )
call = (
    f"LLMAnalysis({KNOWN.get(job['model'], job['model'])}, w16a16e16, dp_size={job['ranks']}).training("
    f"batch_size_per_gpu={job['batch']}, seq_len={job['seq']}, {recomputation}, DSZeRO.STAGE_3)"
    '["(weight+op_state+grad+act)_memory_per_gpu"]'
)
total_bytes = round(said["(weight+op_state+grad+act)_memory_per_gpu"])
print(json.dumps({"version": version("llm-analysis"), "call": call, "bytes": total_bytes}))
