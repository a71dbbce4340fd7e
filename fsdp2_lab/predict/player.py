"""Plays a stage script for a prediction: two steps over made-up batches, a depth of choice, and no weights."""

import copy
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from ..contract.settings import Settings
from .live import LiveBytes, StepLog

STEPS = 2  # the first creates the optimizer's states, the second is as all later ones


class Player:
    """Stands in for text, weights and record while one script runs once.

    `live` counts bytes; without it the script's own record does. `layers` is the depth to build, `None` for the
    config's own.
    """

    def __init__(self, live: LiveBytes | None = None, layers: int | None = None):
        self._live, self._layers = live, layers
        self.logs: list[StepLog] = []
        self.full_config = None
        self.parameters = None

    def open_record(self, _settings):
        return WatchedRecord(self._live, self.logs) if self._live else None

    def config(self, config):
        self.full_config = copy.deepcopy(config)
        if self._layers is not None:
            config.num_hidden_layers = self._layers
            if isinstance(kinds := getattr(config, "layer_types", None), list):
                config.layer_types = (kinds + kinds[-1:] * self._layers)[: self._layers]
        if self._live:
            self._live.vocabulary = config.vocab_size
        return config

    def weights(self, config, settings: Settings) -> dict[str, torch.Tensor]:
        model = empty_model(config, settings.param_dtype)
        self.parameters = count_parameters(model)
        state, made = model.state_dict(), {}  # a tied tensor goes by two names
        for tensor in state.values():
            storage = id(tensor.untyped_storage())
            if storage not in made:
                made[storage] = torch.zeros_like(tensor, device="cpu")
        return {name: made[id(tensor.untyped_storage())] for name, tensor in state.items()}

    def batches(self, _config, settings: Settings) -> Iterator:
        for _ in range(STEPS):
            yield [torch.zeros(settings.batch, settings.seq, dtype=torch.long) for _ in range(2)]


class WatchedRecord:
    """What a script's record is while it is dry-run: it cuts the log of live bytes into steps."""

    folder = Path()  # nothing is written there

    def __init__(self, live: LiveBytes, logs: list[StepLog]):
        self._live, self._logs = live, logs

    def steps(self, batches: Iterable, first: int = 0) -> Iterator:
        for _, batch in zip(range(STEPS), batches, strict=False):
            self._live.begin_step()
            yield batch
            self._logs.append(self._live.end_step())

    def stage(self, name: str) -> None:
        pass

    def note(self, **values) -> None:
        pass

    def log(self, **values) -> None:
        pass

    def close(self) -> None:
        pass


def empty_model(config, dtype: torch.dtype):
    """A causal LM of the config on the meta device."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=dtype)


def count_parameters(model) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
