"""Full sets of weights: read from a safetensors checkpoint, made from a seed, and saved as checkpoints."""

import shutil

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from ..contract import stand_in, workspace
from ..contract.errors import UsageError, first_line
from ..contract.model_source import BUILT_IN, find_model
from ..contract.settings import Settings


def initial_weights(config: PretrainedConfig, settings: Settings) -> dict[str, torch.Tensor]:
    """Names to full CPU tensors in `settings.param_dtype`; the same on any number of ranks.

    From the checkpoint of `--weights`; where there is none, random from `--seed`, said on stdout. Raises
    `UsageError` for a weight that is missing, left over or of another shape than the model's.
    """
    if stand_in.playing:
        return stand_in.playing.weights(config, settings)
    checkpoint = find_model(settings.model, settings.weights).checkpoint
    if checkpoint is None:
        print(f"{settings.model}: random weights from seed {settings.seed}, no checkpoint is used", flush=True)
        torch.manual_seed(settings.seed)
        return AutoModelForCausalLM.from_config(config, dtype=settings.param_dtype).state_dict()
    print(f"{settings.model}: weights from {checkpoint}", flush=True)
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            checkpoint,
            config=config,
            dtype=settings.param_dtype,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,  # so that the report below names them, instead of a traceback
            output_loading_info=True,
        )
    except (SafetensorError, OSError, ValueError) as error:
        raise UsageError(
            f"{checkpoint}: these safetensors cannot be read ({first_line(error)}); copy them again."
        ) from error
    _check(report, checkpoint)
    return model.state_dict()


def _check(report: dict, checkpoint) -> None:
    for key, problem in (
        ("mismatched_keys", "has another shape in the checkpoint"),
        ("missing_keys", "is missing from the checkpoint"),
        ("unexpected_keys", "is in the checkpoint but not in the model"),
    ):
        if names := sorted(entry if isinstance(entry, str) else entry[0] for entry in report[key]):
            more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise UsageError(f"{names[0]}{more} {problem} {checkpoint}; give --model the config it was saved with.")


def save_checkpoints(model: PreTrainedModel, **facts) -> None:
    """Save a model with tied embeddings under the built-in names: as it is, and untied with equal weights.

    `facts` about the model, such as its held-out loss, go beside the weights as `facts.json`. Raises
    `UsageError` for a model of other sizes, which would take the built-in ones' place.
    """
    if stand_in.playing:
        return  # what was played has learnt nothing, and would take the place of what has
    expected = BUILT_IN["byte-llama-tied"]
    if differing := [key for key in expected if getattr(model.config, key, None) != expected[key]]:
        raise UsageError(
            f"This model differs from byte-llama-tied in {differing[0]}, so it cannot be saved under its name."
        )
    _save(model, "byte-llama-tied", facts)
    untied = AutoModelForCausalLM.from_config(
        type(model.config).from_dict(model.config.to_dict() | {"tie_word_embeddings": False}), dtype=model.dtype
    )
    untied.load_state_dict(model.state_dict())  # a tied model's state names its one tensor twice
    _save(untied, "byte-llama", facts)


def _save(model: PreTrainedModel, name: str, facts: dict) -> None:
    folder = workspace.checkpoints_dir() / name
    unfinished = folder.with_name(f".{name}.unfinished")  # renamed at the end, so `folder` is whole or absent
    shutil.rmtree(unfinished, ignore_errors=True)
    model.save_pretrained(unfinished)
    workspace.write_json(unfinished / "facts.json", facts)
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)
