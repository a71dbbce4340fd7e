"""Stage 3: a block's parameters are gathered for its forward and again for its backward, and freed after each.

    torchrun --standalone --nproc_per_node=2 launch/zero3.py

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

record.stage("zero3")  # notebooks/02_zero_by_hand.ipynb
"""Stage 3: a block's parameters are gathered for its forward and again for its backward, and freed after each."""
from torch.nn.functional import mse_loss

pieces = [torch.nn.Parameter(flat.view(world_size, -1)[rank].clone()) for flat in flats]
del flats
optimizer = torch.optim.AdamW(pieces, lr=1e-3)


def gathered(piece):
    flat = piece.new_empty(PADDED)
    dist.all_gather_into_tensor(flat, piece.detach())
    return flat


class ShardedBlock(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, piece):
        ctx.save_for_backward(x, piece)  # a piece, not the whole
        return block(x, gathered(piece))

    @staticmethod
    def backward(ctx, grad):
        x, piece = ctx.saved_tensors
        x, flat = x.detach().requires_grad_(), gathered(piece).requires_grad_()
        with torch.enable_grad():
            y = block(x, flat)
        grad_x, grad_flat = torch.autograd.grad(y, (x, flat), grad)
        grad_piece = torch.empty_like(piece)
        dist.reduce_scatter_tensor(grad_piece, grad_flat)
        return grad_x, grad_piece / world_size


for x, target in record.steps(batches()):
    for piece in pieces:
        x = ShardedBlock.apply(x.requires_grad_(), piece)
    loss = mse_loss(x, target)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    log(loss.detach(), 3 * sum(piece.nbytes for piece in pieces) * (world_size - 1))
