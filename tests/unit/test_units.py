"""Bytes and seconds as people read them."""

import pytest

from fsdp2_lab.contract.units import format_bytes, format_seconds


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "–"),
        (0, "0.00 MiB"),
        (2**20, "1.00 MiB"),
        (2**30 - 1, "1,024.00 MiB"),
        (2**30, "1.00 GiB"),
        (-(2**31), "-2.00 GiB"),
    ],
)
def test_bytes_are_mib_and_gib(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(None, "–"), (0.0421, "42.1 ms"), (0.1, "0.10 s"), (75.0, "75.00 s")])
def test_seconds_are_milliseconds_below_a_tenth(seconds, text):
    assert format_seconds(seconds) == text
