"""Measures single steps: the first ones for what their bytes are for, which slows them, and the others for time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..contract.record import StepRow
from ..contract.sharded import ROOT_UNIT, UnitRow
from .allocator import Lap
from .attribution import Attribution
from .owners import Owners
from .spans import SpanFinder
from .units import CalledModel

METERED_STEPS = 2  # the first creates Adam's states, the second is as all later ones


class StepMeter:
    """Measures the steps of one loop with a stage's meter, which it stops and starts."""

    def __init__(self, meter):
        self._meter, self._attribution, self._finder = meter, Attribution(), SpanFinder()
        self._begun = 0
        self.units: list[UnitRow] = []  # of the model that the latest metered step called

    @contextmanager
    def measuring(self, row: StepRow, laps: list[Lap]) -> Iterator[None]:
        """Fill the row with what its step took; the lap of a metered one is added to `laps`."""
        is_traced = self._begun < METERED_STEPS
        self._begun += 1
        row.timed = not is_traced
        if not is_traced:
            if not self._meter.slows_steps:
                self._meter.start()
            with self._timed(row):
                yield
            if not self._meter.slows_steps:
                self._stop(row, laps)
            return
        owners, model = Owners(), CalledModel()
        with owners.watching(), model.watching():
            self._meter.start(of_a_step=True)
            with self._timed(row):
                yield
        lap = self._stop(row, laps)
        if lap and lap.events:
            step = self._attribution.of(lap, owners)
            row.terms, row.phases, row.curve = step.terms, step.phases, step.curve
            row.spans = self._finder.of(lap)
        self.units = model.units(sorted({span.unit for span in row.spans} - {ROOT_UNIT})) or self.units

    def _stop(self, row: StepRow, laps: list[Lap]) -> Lap | None:
        if lap := self._meter.stop():
            laps.append(lap)
            row.peak_bytes = lap.peak_bytes
        return lap

    @contextmanager
    def _timed(self, row: StepRow) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._meter.synchronize()
        row.seconds = time.perf_counter() - start
