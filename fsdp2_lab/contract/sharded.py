"""What a record has of a sharded model: its units, who holds which rows, and when a step gathers, reduces and frees."""

from dataclasses import dataclass, field

SPAN_KINDS = ("all_gather", "gathered", "forward", "backward", "reduce_scatter")
MOST_SPANS = 4096  # of a step
MOST_UNITS = 1024
MOST_SHARDS = 128
ROOT_UNIT = "root"


@dataclass
class Span:
    """What FSDP2 does with one unit, from when to when in a step. `kind` is one of `SPAN_KINDS`.

    `gathered` is the time in which the unit's whole parameters are in memory, `size_bytes` of them; `forward` and
    `backward` are its computing, from its first operation to its last, and not what is computed again.
    """

    kind: str
    unit: str
    start_seconds: float
    end_seconds: float
    size_bytes: int | None = None


@dataclass
class Shard:
    """The rows of one parameter that a rank holds. Row 0 is the first of dimension `dim`, along which it is cut.

    `first_row` is `None` where a parameter is cut along several dimensions of the mesh; `whole_bytes` are all ranks'.
    """

    name: str
    first_row: int | None
    rows: int
    global_rows: int
    whole_bytes: int
    dim: int = 0


@dataclass
class UnitRow:
    """One of FSDP2's units, gathered as one: its bytes whole and as this rank holds them, and some of its shards."""

    name: str
    tensors: int
    whole_bytes: int
    held_bytes: int
    shards: list[Shard] = field(default_factory=list)
