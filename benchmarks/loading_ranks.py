"""Load one folder in one of three ways and note what that cost this rank; `loading.py` launches it.

    torchrun --standalone --nproc_per_node=2 benchmarks/loading_ranks.py WAY FOLDER

Linux only: the kernel's highest resident size is set back just before loading.
"""

import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from accelerate import init_empty_weights
from safetensors import safe_open
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoConfig, AutoModelForCausalLM

from fsdp2_lab.contract.settings import Settings
from fsdp2_lab.rank import find_blocks, initial_weights, load_slices, open_record
from fsdp2_lab.rank.matching import wanted
from fsdp2_lab.rank.materializing import materialize
from fsdp2_lab.rank.stored_tensors import read_headers

CPU = torch.device("cpu")


def broadcast(model, folder: Path) -> int:
    """The article's recipe: rank 0 reads all, every rank receives its shards."""
    settings = Settings(model=str(folder), param_dtype=torch.float32)
    weights = initial_weights(model.config, settings) if dist.get_rank() == 0 else {}
    size = sum(tensor.nbytes for tensor in weights.values())
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    return size


def stock(model, folder: Path) -> int:
    """torch's own reader."""
    materialize(model, CPU)
    dcp.load(wanted(model), storage_reader=dcp.HuggingFaceStorageReader(str(folder)))
    return sum(parameter.to_local().nbytes for parameter in model.parameters())


def slices(model, folder: Path) -> int:
    return load_slices(model, folder, CPU).bytes_read


class Anonymous(threading.Thread):
    """The most anonymous memory, looked at a hundred times a second: resident, but not a file's pages."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak_bytes, self._stop_now = 0, threading.Event()

    def run(self):
        while not self._stop_now.wait(0.01):
            self.peak_bytes = max(self.peak_bytes, status("RssAnon"))

    def end(self) -> int:
        self._stop_now.set()
        self.join()
        return self.peak_bytes


def status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def same_bits(model, folder: Path) -> bool:
    """Whether this rank's shards are the stored rows, by each rank's share of every dimension 0."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    stored = read_headers(folder)
    for name, parameter in model.named_parameters():
        rows = -(-len(parameter) // ranks)
        with safe_open(folder / stored[name].file, framework="pt") as file:
            if not torch.equal(parameter.to_local(), file.get_slice(name)[rank * rows : (rank + 1) * rows]):
                return False
    return True


def main() -> None:
    way, folder = sys.argv[1], Path(sys.argv[2])
    record = open_record()
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    config = AutoConfig.from_pretrained(folder)
    with init_empty_weights():
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for block in find_blocks(model):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    dist.barrier()
    Path("/proc/self/clear_refs").write_text("5")
    before, anonymous_before = status("VmRSS"), status("RssAnon")
    watch = Anonymous()
    watch.start()
    began = time.monotonic()
    bytes_read = {"broadcast": broadcast, "stock": stock, "slices": slices}[way](model, folder)
    dist.barrier()
    seconds = time.monotonic() - began
    record.note(
        seconds=seconds,
        peak_bytes=status("VmHWM") - before,
        anonymous_bytes=watch.end() - anonymous_before,
        bytes_read=bytes_read,
        own_bytes=sum(parameter.to_local().nbytes for parameter in model.parameters()),
        same_bits=same_bits(model, folder),
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
