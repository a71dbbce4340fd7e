"""Measures single steps: the first ones for what their bytes are for, which slows them, and the others for time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..contract.record import StepRow
from .allocator import Lap
from .attribution import Attribution
from .owners import Owners

METERED_STEPS = 2  # the first creates Adam's states, the second is as all later ones


class StepMeter:
    """Measures the steps of one loop with a stage's meter, which it stops and starts."""

    def __init__(self, meter):
        self._meter, self._attribution = meter, Attribution()

    @contextmanager
    def measuring(self, row: StepRow, laps: list[Lap]) -> Iterator[None]:
        """Fill the row with what its step took; the lap of a metered one is added to `laps`."""
        is_traced = row.step < METERED_STEPS
        row.timed = not is_traced
        if not is_traced and self._meter.slows_steps:
            with self._timed(row):
                yield
            return
        owners = Owners()
        with owners.watching():
            self._meter.start(of_a_step=is_traced)
            with self._timed(row):
                yield
        if lap := self._meter.stop():
            laps.append(lap)
            row.peak_bytes = lap.peak_bytes
            if lap.events:
                step = self._attribution.of(lap, owners)
                row.terms, row.phases, row.curve = step.terms, step.phases, step.curve

    @contextmanager
    def _timed(self, row: StepRow) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._meter.synchronize()
        row.seconds = time.perf_counter() - start
