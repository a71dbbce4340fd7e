"""The words in figures and tables, in one place, so that an edition in another language changes one file."""

RANK = "rank {}"
STEP = "step"
MIB, GIB = "MiB", "GiB"
SECONDS = "seconds of the step"
LOSS = "loss, nats per token"
PEAK = "peak"
HELD = "held at its end"

LOSSES_TITLE = "loss over the tokens of all ranks"
STAGES_TITLE = "bytes by stage, a bar a rank"
SHARDS_TITLE = "who holds which rows"
FROM_SHAPES = "{}, from each rank's local shapes"
COSTS_COLUMNS = ("run", "all-gathers", "reduce-scatters", "later steps' peak", "median step", "how")
COSTS_TITLE = "collectives of a step"
COLLECTIVE_NAMES = {"all_gather": "all-gathers", "reduce_scatter": "reduce-scatters"}
COUNTED = "counted"
PEAK_TITLE = "peak of a later step, {}"
SECONDS_TITLE = "median step, seconds"
HOLDS = "rank {}: {:,} numbers"

RANKS_COLUMNS = ("rank", "local rank", "world size", "process", "device")
STAGE_COLUMNS = ("run", "rank", "bytes before", "bytes after", "peak bytes", "seconds", "resident", "how")
STEPS_COLUMNS = ("run", "ranks", "first step's peak", "later steps' peak", "median step", "how")

# Of terms, as in contract/terms.py.
TERM_NAMES = {
    "sharded_parameters": "sharded parameters",
    "sharded_gradients": "sharded gradients",
    "optimizer": "optimizer states",
    "unsharded_parameters": "unsharded parameters",
    "all_gather": "all-gather buffers",
    "reduce_scatter": "reduce-scatter buffers",
    "activations": "activations",
    "logits": "logits and loss",
    "temporaries": "temporaries",
    "other": "other",
}
# Of a script that need not shard anything.
RANK_TERM_NAMES = TERM_NAMES | {"sharded_parameters": "parameters", "sharded_gradients": "gradients"}
TERM = "at the peak"
STEP_PEAK = "peak of a later step"
FIRST_PEAK = "peak of the first step"
AGAINST_MEASURED = "against measured"
COMPARISON_TITLE = "one of {}, at the peak of a later step"
CURVE_TITLE = "live bytes through step {} of rank {}"
DRY_RUN_TITLE = "live bytes of one of {}"
DRY_RUN_MARKS = "FSDP2's marks, in the order of a step"
CURVE_SECONDS = "seconds of the step, slowed by the meter"

# The picture of a step.
WHO_TITLE = "who holds what, and when: step {}, seen by rank {} of {}"
WHO_READ = "thin: its own rows of a unit; full height: the whole unit, gathered"
WHO_SLOWED = ", times slowed by the meter"
WHO_HOST = ", times of the host, which runs ahead of the GPU"
WHO_ROWS = "parameters, cut by rows"
WHO_GATHER, WHO_WAITING, WHO_REDUCE = "all-gather", "prefetched", "reduce-scatter"
WHO_PEAK = "peak {}"
WHO_UNIT_COLUMNS = ("unit", "whole", "held", "gathered", "share of time", "all-gathers", "reduce-scatters")
WHO_ROW_COLUMNS = ("parameter", "rows")
UNITS_ALIKE = "{1} … {2}, alike"
UNITS_BETWEEN = "{0} units between"
NO_SPANS = (
    "Rank {0} of {1} has no spans{2}: they are of a model that fully_shard has sharded, in a step that "
    "record.steps meters; on a CPU those are the first two."
)

# Why a term may be another when measured.
_THREADS = "threads of the process group may hold a collective's buffers for longer, on one rank and not on another"
RESIDUALS = {
    "all_gather": _THREADS,
    "reduce_scatter": _THREADS,
    "temporaries": "a kernel's own scratchpad, or the peak is at another moment",
}
UNEXPLAINED = "the peak is at another moment"
NO_RESIDUAL = "dry run and measurement have the same bytes in every term, within {} of the peak"

RANK_COUNT = "ranks"
OVER_RANKS_TITLE = "{}, a rank's peak"
ENLARGED_TITLE = "the same from {} ranks on, enlarged"
AS_IT_IS = "as it is"
CHANGES_COLUMNS = ("peak", "where", "largest term", "how")
ARTICLE_COLUMN = "the article's"
FORMULA = "formula"
STEP_TERMS_TITLE = "rank 0 at the peak of a later step"

# Between forward and backward.
SEQ = "tokens in a sequence"
KIB_A_TOKEN = "KiB for each token"
POINTS_AND_LINES = "points {}, lines {}"
AS_ON_THE_LEFT = "points and lines as on the left"
HELD_TITLE = "between forward and backward, rank 0"
HELD_TOKEN_TITLE = "the same, divided by batch × seq"
HELD_COLUMNS = ("checkpointing", "seq", "held", "predicted", "measured against it", "for each token", "how")
TIMED_COLUMNS = ("run", "timed steps", "fastest", "median", "slowest", "how")

# Loading.
LOADING_TITLE = "rise of resident memory while loading, a bar a rank"
LOADING_PASSING = "besides its shards"
LOADING_COLUMNS = ("loaded", "ranks", "seconds", "highest rise", "sum of all ranks", "how")

# Checkpointing's trade.
TRADE_CONTROLS = {
    "model": "model",
    "batch": "batch per GPU",
    "seq": "sequence length",
    "blocks": "blocks checkpointed",
}
TRADE_HEADING = "{}, {}, {}, {} of {} blocks checkpointed"
TRADE_HELD = "Between forward and backward wait {}; with no block checkpointed {}, with all {}."
TRADE_PEAK = "The peak, in {}, is {}; with none {}, with all {}."
TRADE_WORK = "A step computes {:.2f} times the FLOPs of one without checkpointing; with all blocks {:.2f} times."
TRADE_FEWEST = "For the peak of all it is enough to checkpoint the first {}."
TRADE_NOT_FEWER = "The peak of all takes all of them."
TRADE_PARTS_TITLE = "held for backward (lines: with none)"
TRADE_CURVE_TITLE = "peak of one of {}"
TRADE_SUM = "{}, together {}"
TRADE_FLOPS = "FLOPs of a step, as multiple"
TRADE_PEAK_AXIS = "peak, {}"
TRADE_NONE, TRADE_ALL = "none", "all {}"
FIGURE, CONTROLS = "(a figure)", "(controls: run this cell to use them)"

# The planner.
PLAN_TERMS_TITLE = "one of {}, at its peak"
PLAN_CURVE_TITLE = "peak by number of ranks"
PLAN_SUM = "{}, together {}"
PLAN_RANKS = "ranks, a GPU each"
PLAN_USABLE = "{} GiB usable"
DRY_RUN = "dry run"
PLAN_THIS_JOB = "this job"
PLAN_MODEL, PLAN_FOLDER, PLAN_NO_FOLDER = "model", "or a folder", "of a Hugging Face model"
PLAN_CONTROLS = {
    "ranks": "GPUs",
    "gib_per_gpu": "GiB per GPU",
    "batch": "batch per GPU",
    "seq": "sequence length",
    "checkpointing": "activation checkpointing",
    "reshard": "reshard after forward",
}
PLAN_BUTTON, PLAN_BUSY = "Dry run", "running…"
PLAN_BUDGET = "{:g} GiB per GPU, less {:g} GiB for CUDA's context, NCCL and fragmentation (supposed, not measured)."
PLAN_PREDICTED = "predicted (CUDA)"
PLAN_SIZES = "one of {}, batch {} of {} tokens"
PLAN_NOT_DRY_RUN = "dry run: not yet"
PLAN_DRY_RUNNING = "The dry run plays launch/train.py as one of {}; it takes some seconds."
PLAN_DRY_RUN = "{how}: {found}, found in {seconds:.0f} s."
PLAN_AGAINST = "Predicted are {predicted}, {error:+z.2%} against it."
PLAN_NO_DRY_RUN = "No dry run: {}"

# The shards of one tensor.
SHARD_CONTROLS = {"ranks": "ranks", "rows": "rows"}
SHARD_TITLE = "a tensor of {:,} × {:,} over {}"
SHARD_HOW = "predicted, cut as torch.chunk does; the marks: where equal shares would end"
SHARD_ROWS = "{:,} × {:,} over {}. Rows: {}."
SHARD_IDLE = "{} without a row of it, with nothing but padding."
SHARD_LARGEST = "The largest piece is {:.1%} of the rows; an equal share would be {:.1%}."
SHARD_PADDING = "Padding: {:,} × {:,} zeros, {:,} bytes, stored by the short ranks and sent with every gather."

# The table of exercises.
CHAPTERS = {
    "00": "start here",
    "01": "where the memory goes",
    "02": "ZeRO by hand",
    "03": "ranks and the device mesh",
    "04": "meta-device init",
    "05": "sharding",
    "06": "loading weights",
    "07": "activation checkpointing",
    "08": "training",
    "13": "plan your own job",
}
PROGRESS_COLUMNS = ("chapter", "right", "exercises")
PROGRESS_RIGHT = "{} of {}"
PROGRESS_STATES = {"right": "right", "not yet": "not yet", "unanswered": "open"}
PROGRESS_ASKED = ("tries: {}", "hints: {}", "solution seen")

# What comes on top of allocated bytes on a GPU.
OVERHEAD_ROWS = {
    "allocated": "allocated, at the peak",
    "cached": "cached and fragments: reserved, not allocated",
    "context": "CUDA's context and libraries, before the first stage's end",
    "grown": "outside the allocator since then: NCCL's buffers, more kernels",
    "used": "used on the GPU",
}

# Ranks, meshes and collectives.
MESH_TITLE = "a mesh of {} × {} ranks, replicate × shard"
MESH_NOTED = "{}, from the place that each rank noted"
MESH_SHARD, MESH_REPLICA = "shard {}", "replica {}"
COLLECTIVES_TITLE = "before and after each collective · {}"
COLLECTIVE = {"before": "{}: before", "after": "after"}
WIRE_FORMULA = "{}(N − 1)/N · S"
WIRE_COLUMNS = ("collective", "a rank sends in a ring", "MiB, predicted")
WIRE_MEASURED = "MiB, {}, gloo"
