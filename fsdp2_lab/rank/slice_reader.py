"""Reads for torch.distributed.checkpoint: of each stored tensor the slices that this rank's shards need."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import safe_open
from torch.distributed.checkpoint import LoadPlan, LoadPlanner, Metadata, StorageReader
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, TensorProperties, TensorStorageMetadata
from torch.futures import Future

from ..contract.errors import UsageError
from .matching import Match
from .stored_tensors import StoredTensor


class SliceReader(StorageReader):
    """Gives the planner whole tensors to choose from, and reads what it chose; `bytes_read` counts that.

    torch's HuggingFaceStorageReader keeps a file mapped until all slices in it are read, and what is mapped counts as
    resident; it reads every file of a folder, whatever the index says, and knows tensors by their stored names alone.
    """

    def __init__(self, folder: Path, matched: Match):
        self._folder, self._matched = folder, matched
        self.bytes_read = 0

    def read_metadata(self) -> Metadata:
        return Metadata({name: _whole(place) for name, place in self._matched.found.items()})

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        for item in plan.items:
            name = item.storage_index.fqn
            rows = tuple(slice(at, at + length) for at, length in zip(item.storage_offsets, item.lengths, strict=True))
            place, doubles = self._matched.found[name], self._matched.doubles[name]
            target = planner.resolve_tensor(item).detach()
            with self._mapped(place, rows) as part:
                target.copy_(part)  # converts the dtype, too
                for double in doubles:
                    with self._mapped(double, rows) as other:
                        self._check_tied(place, part, double, other)
            planner.commit_tensor(item, target)
        done = Future()
        done.set_result(None)
        return done

    @contextmanager
    def _mapped(self, place: StoredTensor, rows: tuple[slice, ...]) -> Iterator[torch.Tensor]:
        with safe_open(self._folder / place.file, framework="pt") as opened:
            part = opened.get_slice(place.key)[rows]
            self.bytes_read += part.nbytes
            yield part

    def _check_tied(self, place: StoredTensor, part: torch.Tensor, double: StoredTensor, other: torch.Tensor) -> None:
        if not torch.equal(part, other.to(part.dtype)):
            raise UsageError(
                f"{place.key} and {double.key} differ in {self._folder}, and the model ties them; "
                "set tie_word_embeddings to false in its config, or one would be lost."
            )

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args, **kwargs) -> None:
        """Nothing: what is stored is known already."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def reset(self, checkpoint_id=None) -> None:
        """Nothing: a reader reads once."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id) -> bool:
        return True


def _whole(place: StoredTensor) -> TensorStorageMetadata:
    size = torch.Size(place.shape)
    chunk = ChunkStorageMetadata(torch.Size([0] * len(size)), size)
    return TensorStorageMetadata(TensorProperties(), size, [chunk])
