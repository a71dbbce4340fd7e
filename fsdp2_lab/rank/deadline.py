"""A process group's timeout below the launch's deadline. The one file on torch's names for the default.

`init_process_group(timeout=…)` would not reach the groups of a mesh, which take the default.
"""

import os
from datetime import timedelta

from torch.distributed import distributed_c10d

from ..contract.workspace import TIMEOUT_VARIABLE

_SHARE = 0.8  # of the launch's time: a wait that begins early ends with torch's error, a later one at the deadline


def wait_less_than_the_deadline() -> None:
    """Lower the default timeout of process groups made from now on; without a launcher, nothing is changed."""
    if seconds := os.environ.get(TIMEOUT_VARIABLE):
        limit = timedelta(seconds=_SHARE * float(seconds))
        for name in ("default_pg_timeout", "default_pg_nccl_timeout"):
            default = getattr(distributed_c10d, name)
            if default is None or default > limit:  # None: a build without NCCL
                setattr(distributed_c10d, name, default and limit)
