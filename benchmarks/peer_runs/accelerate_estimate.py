"""accelerate's estimate, on an empty model made from a config: its command line would ask a hub for the model.

A job as JSON comes as the first argument; a row as JSON is printed.
"""

import json
import sys

import accelerate
from accelerate import init_empty_weights
from accelerate.commands.estimate import estimate_training_usage
from accelerate.utils import calculate_maximum_sizes
from transformers import AutoConfig, AutoModelForCausalLM

job = json.loads(sys.argv[1])
with init_empty_weights():
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**job["config"]))
total_bytes, _largest_layer = calculate_maximum_sizes(model)
usage = estimate_training_usage(total_bytes, job["compute_dtype"])
call = f'max(estimate_training_usage({total_bytes}, "{job["compute_dtype"]}").values())'
print(json.dumps({"version": accelerate.__version__, "call": call, "bytes": max(usage.values())}))
