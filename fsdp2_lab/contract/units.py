"""Bytes and seconds as people read them. MiB is 2**20 bytes, GiB is 2**30."""

MIB = 2**20
GIB = 2**30


def format_bytes(count: float | None) -> str:
    """Bytes as MiB, or as GiB from 1 GiB up; an en dash where nothing was measured."""
    if count is None:
        return "–"
    return f"{count / GIB:,.2f} GiB" if abs(count) >= GIB else f"{count / MIB:,.2f} MiB"


def format_ranks(count: int) -> str:
    return f"{count} rank{'s' * (count != 1)}"


def format_seconds(seconds: float | None) -> str:
    """Seconds with two decimals, milliseconds below a tenth; an en dash where nothing was measured."""
    if seconds is None:
        return "–"
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1000:.1f} ms"


def format_duration(seconds: float) -> str:
    """Whole seconds as people say them: 8 s, 3 min 20 s, 2 h 05 min."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60:02} min"
