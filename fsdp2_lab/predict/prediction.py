"""A prediction: what one rank of a job will hold at its peak, by what it is for, and how that is known."""

from dataclasses import asdict, dataclass, field

from ..contract.units import format_bytes, format_ranks


@dataclass
class Prediction:
    """Peaks of one rank, in bytes. `step0_peak_bytes` is the first step's, in which the optimizer's states are made.

    `terms` are the bytes alive at the peak, by the names of `contract/terms.py`, and add up to it; `peak_at` says
    where in the step that is. `notes` are what the reader should know of how it was found. `curve` is the later step
    at the deepest depth played: phase, FSDP's mark, its module, and the highest `live_bytes` up to the next mark.
    """

    how: str
    ranks: int
    parameters: int
    peak_bytes: int
    step0_peak_bytes: int
    peak_at: str
    terms: dict[str, int] = field(default_factory=dict)
    step0_terms: dict[str, int] = field(default_factory=dict)
    layers: int | None = None
    depths_played: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float | None = None
    rss_peak_bytes: int | None = None
    curve: list[dict] = field(default_factory=list)

    def to_json(self) -> dict:
        """All of it as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{format_bytes(self.peak_bytes)} on each of {format_ranks(self.ranks)}, {self.how} · "
            f"{self.parameters:,} parameters · first step {format_bytes(self.step0_peak_bytes)}",
            f"  peak in {self.peak_at}",
        ]
        lines += [f"  {name:<22}{format_bytes(count):>14}" for name, count in self.terms.items()]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    __repr__ = __str__
