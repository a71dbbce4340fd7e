"""Figures and tables for the page. Each takes a `Run` or a `Comparison` and says how its numbers were got."""

from .account_views import article, changes, over_ranks
from .figures import loss_curves, peaks, rank_tiles, shard_bars, training
from .memory_figures import dry_run_curve, memory_curve, step_terms, ways
from .overhead import overhead
from .planner import planner
from .tables import compare_stage, compare_steps, ranks

__all__ = [
    "article",
    "changes",
    "compare_stage",
    "compare_steps",
    "dry_run_curve",
    "loss_curves",
    "memory_curve",
    "over_ranks",
    "overhead",
    "peaks",
    "planner",
    "rank_tiles",
    "ranks",
    "shard_bars",
    "step_terms",
    "training",
    "ways",
]
