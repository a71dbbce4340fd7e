"""What collectives send: by the formula of a ring, and as the network interface counted it."""

import pandas as pd

from ..contract.record import MEASURED_CPU
from ..contract.units import MIB
from ..lab.runs import Run
from . import labels

# Parts of the whole list that a rank sends, on average, times N/(N - 1): a ring passes pieces to its neighbour.
RING = {"broadcast": 1, "all-gather": 1, "reduce-scatter": 1, "all-reduce": 2, "all-to-all": 1}


def wire(run: Run) -> pd.DataFrame:
    """MiB that a rank sends in each collective, on average: a ring's, predicted, and what loopback counted.

    From `whole_bytes` and `sent_bytes` that rank 0 noted under each collective's name.
    """
    rows = []
    for name, times in RING.items():
        seen = run.noted(name)[0]
        ring = times * (run.ranks - 1) / run.ranks * seen["whole_bytes"] / MIB
        formula = labels.WIRE_FORMULA.format("2 " if times == 2 else "")
        rows.append((name, formula, round(ring, 1), round(seen["sent_bytes"] / MIB, 1)))
    columns = [*labels.WIRE_COLUMNS, labels.WIRE_MEASURED.format(MEASURED_CPU)]
    return pd.DataFrame(rows, columns=columns).set_index(columns[0])
