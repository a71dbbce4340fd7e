"""Write a checkpoint of 264 MiB with random weights on one process: large enough to be seen in resident memory.

    torchrun --standalone --nproc_per_node=2 launch/fill.py

Written by notebooks/06_loading_weights.ipynb: change the cell there and run it, and this file follows.
"""

from fsdp2_lab.rank import open_record, read_settings

settings = read_settings()
record = open_record(settings)

record.stage("fill")  # notebooks/06_loading_weights.ipynb
"""Write a checkpoint of 264 MiB with random weights on one process: large enough to be seen in resident memory."""
import os
import sys

from transformers import AutoConfig, AutoModelForCausalLM

if os.environ.get("RANK", "0") != "0":
    sys.exit()  # a program for one process; other ranks have nothing to do

config = AutoConfig.for_model(
    "llama", vocab_size=8192, hidden_size=768, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=12
)
model = AutoModelForCausalLM.from_config(config)
model.save_pretrained(record.folder / "model")
record.note(bytes=sum(parameter.nbytes for parameter in model.parameters()))
