"""Figures and tables for the page. Each takes a `Run` or a `Comparison` and says how its numbers were got."""

from .account_views import article, changes, over_ranks
from .activations import held_bytes, held_over_seq, held_table
from .checkpointing_trade import checkpointing_trade
from .cost_figures import compare_costs, costs
from .figures import loss_curves, peaks, training
from .loading_figures import loading, loading_table
from .memory_figures import dry_run_curve, memory_curve, step_terms, ways
from .mesh_figures import collectives, mesh_layout
from .overhead import overhead
from .planner import planner
from .shard_figures import shards
from .shard_widget import shard_widget
from .step_figures import who_holds_what
from .tables import compare_stage, compare_steps, noted, noted_rows, ranks, step_times
from .wire import wire

__all__ = [
    "article",
    "changes",
    "checkpointing_trade",
    "collectives",
    "compare_costs",
    "compare_stage",
    "compare_steps",
    "costs",
    "dry_run_curve",
    "held_bytes",
    "held_over_seq",
    "held_table",
    "loading",
    "loading_table",
    "loss_curves",
    "memory_curve",
    "mesh_layout",
    "noted",
    "noted_rows",
    "over_ranks",
    "overhead",
    "peaks",
    "planner",
    "ranks",
    "shard_widget",
    "shards",
    "step_terms",
    "step_times",
    "training",
    "ways",
    "who_holds_what",
    "wire",
]
