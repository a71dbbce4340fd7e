"""Stage 1: each rank keeps Adam's states for its own piece, updates it, and gathers the others.

    torchrun --standalone --nproc_per_node=2 launch/zero1.py

Written by notebooks/02_zero_by_hand.ipynb: change the cell there and run it, and this file follows.
"""

from fsdp2_lab.rank import open_record, read_settings

settings = read_settings()
record = open_record(settings)

record.stage("mesh")  # notebooks/03_ranks_and_mesh.ipynb
"""Join the process group and lay the ranks out as a one-dimensional mesh."""
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

device_type = "cuda" if torch.cuda.is_available() else "cpu"
device = torch.device(device_type, int(os.environ["LOCAL_RANK"]) if device_type == "cuda" else None)
if device_type == "cuda":
    torch.cuda.set_device(device)  # before any CUDA call, which would use GPU 0

dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh(device_type, (world_size,), mesh_dim_names=("shard",))

record.stage("blocks")  # notebooks/02_zero_by_hand.ipynb
"""Eight blocks, a flat tensor of parameters each, and batches that do not depend on the number of ranks."""
from torch.nn.functional import gelu

WIDTH, BLOCKS = 256, 8
NUMEL = 8 * WIDTH**2  # of a block: two matrices, each of WIDTH x 4·WIDTH
PADDED = -(-NUMEL // world_size) * world_size  # divides by the number of ranks
dice = torch.Generator().manual_seed(settings.seed)
initial = [0.02 * torch.randn(NUMEL, generator=dice) for _ in range(BLOCKS)]
flats = [torch.cat([flat, flat.new_zeros(PADDED - NUMEL)]).to(device) for flat in initial]
del initial


def block(x, flat):
    up, down = flat[:NUMEL].view(2, WIDTH, 4 * WIDTH)
    return x + gelu(x @ up) @ down.T


def batches():
    for step in range(settings.steps):
        dice = torch.Generator().manual_seed(settings.seed + step + 1)
        x = torch.randn(world_size * settings.batch, WIDTH, generator=dice)  # of all ranks
        mine = slice(rank * settings.batch, (rank + 1) * settings.batch)
        yield x[mine].to(device), x.flip(1)[mine].to(device)  # the task: turn each row round


def log(loss, sent_bytes):
    dist.all_reduce(loss)
    record.log(loss=loss / world_size, tokens=world_size * settings.batch, sent_bytes=sent_bytes)

record.stage("zero1")  # notebooks/02_zero_by_hand.ipynb
"""Stage 1: each rank keeps Adam's states for its own piece, updates it, and gathers the others."""
from torch.nn.functional import mse_loss

weights = [torch.nn.Parameter(flat) for flat in flats]
pieces = [weight.detach().view(world_size, -1)[rank].requires_grad_() for weight in weights]
optimizer = torch.optim.AdamW(pieces, lr=1e-3)
for x, target in record.steps(batches()):
    for weight in weights:
        x = block(x, weight)
    loss = mse_loss(x, target)
    loss.backward()
    sent_bytes = 0
    for weight, piece in zip(weights, pieces, strict=True):
        piece.grad = weight.grad.view(world_size, -1)[rank]
        dist.reduce_scatter_tensor(piece.grad, weight.grad)
        piece.grad /= world_size
        sent_bytes += weight.nbytes * (world_size - 1) // world_size
    optimizer.step()
    for weight, piece in zip(weights, pieces, strict=True):
        dist.all_gather_into_tensor(weight.detach(), piece.detach())
        sent_bytes += weight.nbytes * (world_size - 1) // world_size
        weight.grad = piece.grad = None
    log(loss.detach(), sent_bytes)
