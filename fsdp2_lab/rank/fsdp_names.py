"""FSDP2's names for what it does, as the profiler shows them. The rank side's one file on these private names."""

import re
from functools import lru_cache

ALL_GATHER, COPY_OUT = "FSDP::all_gather", "FSDP::all_gather_copy_out"
PRE_FORWARD, POST_FORWARD = "FSDP::pre_forward", "FSDP::post_forward"
PRE_BACKWARD, POST_BACKWARD = "FSDP::pre_backward", "FSDP::post_backward_accumulate"
RESHARD, REDUCE = "FSDP::post_backward_reshard", "FSDP::post_backward_reduce"

_MARK = re.compile(r"(FSDP::\w+)(?: \((.*)\))?")


@lru_cache(4096)
def mark_of(name: str) -> tuple[str, str] | None:
    """What FSDP2 does and with which unit, the root being `""`; `None` for an operation that is no span of its own.

    `FSDP::all_gather (layers.0)` is of the unit `layers.0`; a unit of several modules has their names, with commas.
    """
    match = _MARK.match(name)
    return (match[1], match[2] or "") if match else None
