"""The closed form: what one rank of a job holds at its peak, from a model's shape and the job's settings alone."""

from dataclasses import dataclass, field
from typing import NamedTuple

from ..contract.settings import Settings
from ..contract.terms import TERMS
from ..contract.units import format_bytes, format_ranks
from .article import article_account, describe_article
from .jobs import find_job
from .moments import why
from .prediction import Prediction
from .walk import Peak, find_peak


class Part(NamedTuple):
    """A part of a term: how many times which size, as formula and in bytes."""

    part: str
    formula: str
    size_bytes: int


@dataclass
class Account(Prediction):
    """A prediction with its formulas.

    `parts` says for each term what it consists of at the peak. In formulas b, s, h are batch, seq and hidden, f the
    MLP's inner width, a and g the widths of all query and of all key heads, n and k the numbers of these heads, d a
    head's width, v the vocabulary, j = 3h; Pb and Pr the parameters of a block and of the root (P of all, where the
    model is one group), padded to divide by N ranks; L the blocks. `article` is the article's own answer.
    """

    device: str = ""
    why: str = ""
    parts: dict[str, list[Part]] = field(default_factory=dict)
    article: dict = field(default_factory=dict)

    @property
    def label(self) -> str:
        """How its numbers were got, and whose kernels were supposed: `predicted (CUDA)`."""
        return f"{self.how} ({self.device.upper()})"

    def to_json(self) -> dict:
        parts = {term: [part._asdict() for part in parts] for term, parts in self.parts.items()}
        return super().to_json() | {"parts": parts}

    def __str__(self) -> str:
        lines = [
            f"{format_bytes(self.peak_bytes)} on each of {format_ranks(self.ranks)}, {self.label} · "
            f"{self.parameters:,} parameters · first step {format_bytes(self.step0_peak_bytes)}",
            f"  peak in {self.peak_at}: {self.why}",
        ]
        for term, size_bytes in self.terms.items():
            lines.append(f"  {term:<22}{format_bytes(size_bytes):>14}  {_formula(self.parts[term])}")
        return "\n".join(["\n".join(lines), *("  " + line for line in [*describe_article(self.article), *self.notes])])

    __repr__ = __str__


def account(
    model: str,
    ranks: int,
    *,
    batch: int = Settings.batch,
    seq: int = Settings.seq,
    param_dtype: str = Settings.param_dtype,
    compute_dtype: str = Settings.compute_dtype,
    checkpointing: bool = Settings.checkpointing,
    reshard: bool = Settings.reshard,
    optimizer: str = "adamw",
    foreach: bool | None = None,
    fused: bool = False,
    granularity: str = "block",
    device: str = "auto",
) -> Account:
    """Predict one rank's peak in a step of launch/train.py, with the same settings.

    `model` is a known name (`known_models()`) or a Hugging Face folder with a config. `device` is
    `cpu`, `cuda` or this machine's; it decides the dtype of `auto`, attention's kernel, whether collectives copy
    (gloo does), and whether AdamW works on all parameters at once (`foreach`). `fused` is AdamW's of one kernel.
    `granularity` is `block` (every block a group, and the root), or `model` (one group of all). Raises `UsageError`.
    """
    shape, job = find_job(
        model,
        ranks,
        batch=batch,
        seq=seq,
        param_dtype=param_dtype,
        compute_dtype=compute_dtype,
        checkpointing=checkpointing,
        reshard=reshard,
        optimizer=optimizer,
        foreach=foreach,
        device=device,
        fused=fused,
        granularity=granularity,
    )
    peak, first = find_peak(shape, job, is_first=False), find_peak(shape, job, is_first=True)
    terms = _terms(peak)
    notes = []
    if job.device == "cuda":
        notes.append("Allocated bytes; CUDA's context, NCCL's buffers and the allocator's fragmentation come on top.")
    return Account(
        how="predicted",
        ranks=ranks,
        parameters=shape.parameters,
        peak_bytes=peak.size_bytes,
        step0_peak_bytes=first.size_bytes,
        peak_at=f"{peak.at} of {shape.layers}" if " block " in peak.at else peak.at,
        terms=terms,
        step0_terms=_terms(first),
        layers=shape.layers,
        notes=notes,
        device=job.device,
        why=why(peak, shape, job),
        parts=_parts(peak),
        article=article_account(shape, job, terms),
    )


def _terms(peak: Peak) -> dict[str, int]:
    terms = dict.fromkeys(TERMS, 0)
    for label, size_bytes in peak.alive.items():
        terms[label.term] += size_bytes
    return terms


def _parts(peak: Peak) -> dict[str, list[Part]]:
    parts = {term: {} for term in TERMS}
    for label, size_bytes in sorted(peak.alive.items(), key=lambda item: -item[1]):
        count = size_bytes // label.unit_bytes
        formula = label.formula if count == 1 else f"{count}×{label.formula}"
        parts[label.term].setdefault(label.part, []).append((formula, size_bytes))
    return {
        term: [
            Part(part, " + ".join(formula for formula, _ in sizes), sum(size for _, size in sizes))
            for part, sizes in by_part.items()
        ]
        for term, by_part in parts.items()
    }


def _formula(parts: list[Part]) -> str:
    return "; ".join(f"{part.part} {part.formula}" for part in parts)
