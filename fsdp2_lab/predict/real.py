"""A rehearsal's inside: real tensors, fake ranks; the script's own record meters the steps."""

from .player import Player
from .script import run_script


def rehearse(script: str, argv: list[str], ranks: int) -> dict:
    """What the record does not hold of a rehearsal."""
    player = Player()
    run_script(script, argv, ranks, player)
    layers = getattr(player.full_config, "num_hidden_layers", None)
    return {"parameters": player.parameters, "layers": layers, "depths_played": [layers]}
