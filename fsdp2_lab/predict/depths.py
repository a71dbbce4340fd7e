"""A dry run at a few depths, extended to the model's own; or at its own, where its layers are not all alike."""

import gc

import torch

from ..contract.errors import UsageError
from .extend import DEPTHS, NotAlike, Peak, extend, peak_of
from .fake import fake_tensors
from .kernels import Kernels
from .live import LiveBytes, labelled
from .player import STEPS, Player, count_parameters, empty_model
from .script import run_script


def play_and_extend(script: str, argv: list[str], ranks: int, device: str, full_depth: bool) -> dict:
    """The fields of a prediction, for `ranks` ranks with the kernels of `device`."""
    kernels = Kernels(device)
    with fake_tensors() as mode, kernels.supposed():

        def play(layers: int | None) -> Player:
            gc.collect()  # the earlier model's storages are to go before the next are counted
            with LiveBytes(mode, kernels) as live, labelled(live):
                player = Player(live, layers)
                run_script(script, argv, ranks, player)
            if len(player.logs) < STEPS:
                raise UsageError(f"{script} ended after {len(player.logs)} of the {STEPS} steps that a dry run needs.")
            return player

        plays = [] if full_depth else [play(DEPTHS[0])]
        why_full = _why_full(plays[0]) if plays else "as asked"
        if why_full is None:
            try:
                plays += [play(depth) for depth in DEPTHS[1:]]
                return _extended(plays)
            except NotAlike as reason:
                why_full = str(reason)
        return _played(play(None), why_full)


def _why_full(play: Player) -> str | None:
    """Why a model cannot be extended from a few depths, or `None` where that may be tried."""
    layers = getattr(play.full_config, "num_hidden_layers", None)
    if layers is None:
        return "the script builds its model without model_config"
    if layers <= DEPTHS[-1]:
        return f"it has {layers} layers"
    if len(set(getattr(play.full_config, "layer_types", None) or ())) > 1:
        return "its layers are of several kinds"
    return None


def _extended(plays: list[Player]) -> dict:
    layers = plays[0].full_config.num_hidden_layers
    counts = [play.parameters for play in plays]
    parameters = counts[-1] + (counts[-1] - counts[-2]) * (layers - DEPTHS[-1])
    if parameters != count_parameters(empty_model(plays[0].full_config, torch.float32)):
        raise NotAlike("its layers do not all have the same number of parameters")
    first, later = (extend([play.logs[step] for play in plays], layers) for step in range(STEPS))
    note = f"extended from {', '.join(map(str, DEPTHS))} to {layers} layers: each adds the same bytes"
    return _fields(plays[-1], first, later, parameters, layers, list(DEPTHS), note)


def _played(play: Player, why: str) -> dict:
    layers = getattr(play.full_config, "num_hidden_layers", None)
    first, later = (peak_of(log) for log in play.logs)
    depths = [] if layers is None else [layers]
    return _fields(play, first, later, play.parameters, layers, depths, f"played at full depth: {why}")


def _fields(play: Player, first: Peak, later: Peak, parameters: int, layers, depths: list, note: str) -> dict:
    return {
        "parameters": parameters,
        "peak_bytes": later.peak_bytes,
        "step0_peak_bytes": first.peak_bytes,
        "peak_at": later.place,
        "terms": later.terms,
        "step0_terms": first.terms,
        "layers": layers,
        "depths_played": depths,
        "notes": [note],
        "curve": play.logs[-1].curve(),
    }
