"""One rank decides, all ranks know: what is on a disk is looked at once, and an error is everybody's."""

from collections.abc import Callable

import torch.distributed as dist

from ..contract.errors import UsageError


def on_rank_0(decide: Callable, group=None):
    """What `decide()` returns on `group`'s rank 0, on every rank of it. Its `UsageError` is raised on all of them."""
    if not dist.is_initialized():
        return decide()
    told = [None, None]
    if dist.get_rank(group) == 0:
        try:
            told[0] = decide()
        except UsageError as error:
            told[1] = str(error)
    dist.broadcast_object_list(told, group=group, group_src=0)
    if told[1]:
        raise UsageError(told[1])
    return told[0]
