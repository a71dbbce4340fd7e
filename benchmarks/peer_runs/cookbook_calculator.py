"""EleutherAI's calc_transformer_mem.py from a checkout of its repository, whose folder is the second argument.

A job as JSON comes as the first argument; a row as JSON is printed.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

job, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
config = job["config"]
options = {
    "zero-stage": 3,
    "num-gpus": job["ranks"],
    "batch-size-per-gpu": job["batch"],
    "sequence-length": job["seq"],
    "vocab-size": config["vocab_size"],
    "hidden-size": config["hidden_size"],
    "num-attention-heads": config["num_attention_heads"],
    "num-layers": config["num_hidden_layers"],
    "ffn-expansion-factor": config["intermediate_size"] / config["hidden_size"],
    "num-mlp-linears": 3,
    "kv-size-ratio": config["num_key_value_heads"] / config["num_attention_heads"],
}
words = [f"--{name}={value}" for name, value in options.items()]
if job["checkpointing"]:
    words.append("--checkpoint-activations")
if job["compute_dtype"] == "float32":
    words += ["--disable-mixed-precision", "--low-prec-bytes-per-val=4"]  # the latter is its width of activations
script = folder / "calc" / "calc_transformer_mem.py"
said = subprocess.run([sys.executable, script, *words], capture_output=True, text=True, check=True).stdout
gib = float(re.search(r"Per-GPU Memory Required for Training: ([\d.]+) GiB", said)[1])
commit = subprocess.run(
    ["git", "-C", folder, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
).stdout.strip()
call = f"python calc/calc_transformer_mem.py {shlex.join(words)}"
print(json.dumps({"version": f"commit {commit}", "call": call, "bytes": round(gib * 2**30)}))
