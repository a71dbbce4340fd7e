"""Which units a sharded model has, and which rows of each parameter this rank holds, by public hooks alone."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.distributed.tensor import DTensor
from torch.nn.modules.module import register_module_forward_pre_hook

from ..contract.sharded import MOST_SHARDS, MOST_UNITS, ROOT_UNIT, Shard, UnitRow


class CalledModel:
    """The sharded model that a step calls first, found without the script's help."""

    def __init__(self):
        self._model = self._hook = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at the modules that are called, until one is sharded; a script that shards nothing pays nothing."""
        if "torch.distributed.fsdp" in sys.modules:
            # It is gone before a compiled model runs, and fires once: the warning is not the reader's.
            warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks")
            self._hook = register_module_forward_pre_hook(self._called)
        try:
            yield
        finally:
            self._stop()

    def units(self, names: list[str]) -> list[UnitRow]:
        """Its units, the root first and the others in the model's order.

        `names` are FSDP2's own, by which it calls a unit of several modules.
        """
        return units_of(self._model, names) if self._model is not None else []

    def _called(self, module: torch.nn.Module, _inputs) -> None:
        from torch.distributed.fsdp import FSDPModule

        self._model = next((inner for inner in module.modules() if isinstance(inner, FSDPModule)), None)
        if self._model is not None:
            self._stop()

    def _stop(self) -> None:
        if self._hook:
            self._hook.remove()
            self._hook = None


@torch.no_grad()
def units_of(model: torch.nn.Module, names: list[str]) -> list[UnitRow]:
    """The units of a sharded model. Shards are listed of all parameters, or of the root and the first unit if many."""
    from torch.distributed.fsdp import FSDPModule

    together = {part: name for name in names if ", " in name for part in name.split(", ")}
    modules = {name for name, module in model.named_modules() if isinstance(module, FSDPModule)}
    parameters = dict(model.named_parameters())
    units: dict[str, UnitRow] = {}
    listed = set()
    for name, parameter in parameters.items():
        unit = _unit_of(name, modules)
        unit = together.get(unit, unit) or ROOT_UNIT
        if unit not in units and len(units) == MOST_UNITS:
            continue
        row = units.setdefault(unit, UnitRow(unit, 0, 0, 0))
        if unit != ROOT_UNIT and not listed - {ROOT_UNIT}:
            listed.add(unit)
        local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
        row.tensors += 1
        row.whole_bytes += parameter.numel() * parameter.element_size()
        row.held_bytes += local.numel() * local.element_size()
        if len(parameters) <= MOST_SHARDS or (unit in listed | {ROOT_UNIT} and len(row.shards) < MOST_SHARDS // 2):
            row.shards.append(shard_of(name, parameter, local))
    return sorted(units.values(), key=lambda row: row.name != ROOT_UNIT)


def shard_of(name: str, parameter: torch.Tensor, local: torch.Tensor) -> Shard:
    """Which rows of a parameter this rank holds: all of one that is no DTensor."""
    whole_bytes = parameter.numel() * parameter.element_size()
    cuts = []
    if isinstance(parameter, DTensor):
        cuts = [(dim, place.dim) for dim, place in enumerate(parameter.placements) if place.is_shard()]
    if not cuts:
        rows = parameter.shape[0] if parameter.dim() else 1
        return Shard(name, 0, rows, rows, whole_bytes)
    mesh_dim, dim = cuts[0]
    rows, held = parameter.shape[dim], local.shape[dim]
    if len(cuts) > 1:
        return Shard(name, None, held, rows, whole_bytes, dim)
    # As torch.chunk cuts: equal pieces, rounded up, as far as the rows go.
    mesh = parameter.device_mesh
    first = mesh.get_local_rank(mesh_dim) * -(-rows // mesh.size(mesh_dim))
    return Shard(name, min(first, rows), held, rows, whole_bytes, dim)


def _unit_of(parameter: str, modules: set[str]) -> str:
    """The innermost unit that a parameter's name is under."""
    place = parameter
    while "." in place:
        place = place.rpartition(".")[0]
        if place in modules:
            return place
    return ""
