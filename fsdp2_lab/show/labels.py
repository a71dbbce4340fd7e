"""The words in figures and tables, in one place, so that an edition in another language changes one file."""

RANK = "rank {}"
STEP = "step"
MIB = "MiB"
LOSS = "loss, nats per token"
PEAK = "peak"
HELD = "held at its end"

LOSSES_TITLE = "loss over the tokens of all ranks"
STAGES_TITLE = "bytes by stage, a bar a rank"
SHARDS_TITLE = "parameters held"
FROM_SHAPES = "{}, from each rank's local shapes"

EMBEDDING, BLOCKS, HEAD, LAST_NORM = "embedding", "blocks", "head", "last norm"

RANKS_COLUMNS = ("rank", "local rank", "world size", "process", "device")
STAGE_COLUMNS = ("run", "rank", "bytes before", "bytes after", "peak bytes", "seconds", "resident", "how")
STEPS_COLUMNS = ("run", "ranks", "first step's peak", "later steps' peak", "median step", "how")
