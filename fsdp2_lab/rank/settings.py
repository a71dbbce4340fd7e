"""Settings on the rank: the command line, with dtypes as torch has them."""

import sys
from dataclasses import replace

import torch

from ..contract.errors import UsageError
from ..contract.settings import Settings, parse_settings


def read_settings(**defaults) -> Settings:
    """This script's settings from the command line; `defaults` are the script's own, where it has any.

    `param_dtype` and `compute_dtype` become torch dtypes; `auto` becomes bfloat16 on CUDA, float32 on a CPU.
    Exits with status 2 and one sentence where a setting cannot be used.
    """
    try:
        settings = parse_settings(sys.argv[1:], **defaults)
    except UsageError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    compute_dtype = settings.compute_dtype
    if compute_dtype == "auto":
        compute_dtype = "bfloat16" if torch.cuda.is_available() else "float32"
    return replace(
        settings, param_dtype=getattr(torch, settings.param_dtype), compute_dtype=getattr(torch, compute_dtype)
    )
