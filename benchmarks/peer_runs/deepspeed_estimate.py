"""DeepSpeed's estimate of ZeRO-3's model states, from counts of parameters.

A job as JSON comes as the first argument; a row as JSON is printed.
"""

import json
import sys
from contextlib import redirect_stdout

with redirect_stdout(sys.stderr):  # it greets
    import deepspeed
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs

job = json.loads(sys.argv[1])
options = f"{job['parameters']}, {job['largest_layer']}, {job['ranks']}, cpu_offload=False, cpu_offload_params=False"
call = f"estimate_zero3_model_states_mem_needs({options})"
_cpu_bytes, gpu_bytes, _largest = estimate_zero3_model_states_mem_needs(
    job["parameters"], job["largest_layer"], job["ranks"], cpu_offload=False, cpu_offload_params=False
)
print(json.dumps({"version": deepspeed.__version__, "call": call, "bytes": gpu_bytes}))
