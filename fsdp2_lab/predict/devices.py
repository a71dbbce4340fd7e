"""Whose kernels a prediction supposes."""

import shutil

DEVICES = ("auto", "cpu", "cuda")


def supposed(device: str) -> str:
    """`cpu` or `cuda`: the one asked for, and for `auto` this machine's, by whether it has NVIDIA's driver."""
    if device != "auto":
        return device
    return "cuda" if shutil.which("nvidia-smi") else "cpu"
