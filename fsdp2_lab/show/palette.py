"""The colours of ranks and of bytes: Okabe and Ito's, which colour-blind readers tell apart."""

BLUE, ORANGE, GREEN, PINK = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, VERMILION, YELLOW, GREY = "#56B4E9", "#D55E00", "#F0E442", "#8C8C8C"
PALE = "#D9D9D9"

RANKS = (BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, YELLOW, GREY)
SERIES = RANKS
HELD, PEAK = BLUE, SKY
WINE = "#882255"
TERM_COLOURS = {
    "sharded_parameters": BLUE,
    "sharded_gradients": SKY,
    "optimizer": GREEN,
    "unsharded_parameters": ORANGE,
    "all_gather": YELLOW,
    "reduce_scatter": PINK,
    "activations": VERMILION,
    "logits": WINE,
    "temporaries": GREY,
    "other": PALE,
}


def rank_colour(rank: int) -> str:
    return RANKS[rank % len(RANKS)]
