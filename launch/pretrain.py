"""Train the small model on one process and keep it as a checkpoint, tied and untied.

    torchrun --standalone --nproc_per_node=2 launch/pretrain.py

Written by notebooks/06_loading_weights.ipynb: change the cell there and run it, and this file follows.
"""

from fsdp2_lab.rank import open_record, read_settings

settings = read_settings(model='byte-llama-tied', weights='random', steps=240, batch=16, lr=0.003)
record = open_record(settings)

record.stage("pretrain")  # notebooks/06_loading_weights.ipynb
"""Train the small model on one process and keep it as a checkpoint, tied and untied."""
import os
import sys

import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

from fsdp2_lab.rank import held_out_batches, held_out_loss, model_config, save_checkpoints, text_batches, unigram_loss

if os.environ.get("RANK", "0") != "0":
    sys.exit()  # a program for one process; other ranks have nothing to do

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
config = model_config(settings)
torch.manual_seed(settings.seed)
model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, total_iters=20)  # warm-up
for inputs, targets in record.steps(text_batches(config, settings, rank=0, world_size=1)):
    logits = model(input_ids=inputs.to(device), use_cache=False).logits  # (batch, seq, vocab)
    loss = cross_entropy(logits.flatten(0, 1), targets.to(device).flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    record.log(loss=loss, tokens=(targets != -100).sum())

held_out = held_out_loss(model, held_out_batches(config, settings, rank=0, world_size=1), device)
save_checkpoints(model, held_out_loss=held_out, unigram_loss=unigram_loss(), seq=settings.seq)
record.note(held_out_loss=held_out)
