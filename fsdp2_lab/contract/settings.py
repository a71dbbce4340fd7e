"""The settings common to all scripts: one dataclass, read from the command line and checked in one place."""

from dataclasses import asdict, dataclass, field, fields
from functools import cache

from .errors import UsageError
from .model_source import ModelSource, find_model
from .saved_state import check_destination, find_saved, read_state, save_folder

PARAM_DTYPES = ("float32", "bfloat16")  # in float16 AdamW's eps of 1e-8 is 0, and its updates are NaN
COMPUTE_DTYPES = ("auto", "float32", "bfloat16", "float16")
BYTE_TOKENS = 259  # ByT5's: 256 bytes after 3 special tokens
_MOST = 10**9


def _setting(default, text: str):
    return field(default=default, metadata={"help": text})


@dataclass
class Settings:
    """What a run is asked to do. Dtypes go by torch's names; `auto` is decided on the rank, by its device."""

    model: str = _setting("byte-llama", "known name, or a Hugging Face config or checkpoint folder")
    weights: str = _setting("auto", "auto (the model's own checkpoint, if it has one), random, or a safetensors folder")
    batch: int = _setting(4, "sequences per rank and step")
    seq: int = _setting(128, "tokens per sequence")
    steps: int = _setting(20, "training steps")
    lr: float = _setting(1e-4, "learning rate of AdamW")
    param_dtype: str = _setting("float32", "dtype of the sharded parameters, the optimizer's master copy")
    compute_dtype: str = _setting("auto", "dtype of forward and backward; auto: bfloat16 on CUDA, float32 on a CPU")
    checkpointing: bool = _setting(True, "activation checkpointing, true or false")
    reshard: bool = _setting(True, "free gathered parameters after forward, true or false")
    seed: int = _setting(0, "seed of random weights and of the order of the data")
    save_every: int = _setting(0, "steps from one saved training state to the next; 0: none is saved")
    save_to: str = _setting("auto", "folder for saved states; auto: checkpoints/training")
    save_keep: int = _setting(0, "how many of the newest saved states are kept; 0: all")
    save_async: bool = _setting(False, "go on training while a state is written, true or false")
    resume: str = _setting("", "saved state to go on from: a folder …/step-N, or latest (the newest in --save-to)")

    def check(self) -> ModelSource:
        """Check every value against its range and the model's limits; return where the model comes from.

        Raises `UsageError` for the first value that cannot be used.
        """
        self.check_values()
        source = find_model(self.model, self.weights)
        if source.max_seq and self.seq > source.max_seq:
            raise UsageError(f"--seq {self.seq}: {self.model} has positions for {source.max_seq} tokens at most.")
        vocabulary = source.config.get("vocab_size")
        if isinstance(vocabulary, int) and vocabulary < BYTE_TOKENS and not source.has_tokenizer:
            raise UsageError(
                f"--model {self.model}: a vocabulary of {vocabulary} is too small for bytes ({BYTE_TOKENS}), "
                "and the folder has no tokenizer.json."
            )
        self._check_saving()
        return source

    def check_values(self) -> None:
        """Check what can be checked without the model. Raises `UsageError`."""
        for name in ("batch", "seq", "steps"):
            if not 1 <= getattr(self, name) <= _MOST:
                raise UsageError(f"--{name} {getattr(self, name)}: expected a whole number from 1 to {_MOST:,}.")
        for name in ("save_every", "save_keep"):
            if not 0 <= getattr(self, name) <= _MOST:
                option = name.replace("_", "-")
                raise UsageError(f"--{option} {getattr(self, name)}: expected a whole number from 0 to {_MOST:,}.")
        if not 0 < self.lr < float("inf"):
            raise UsageError(f"--lr {self.lr}: expected a number above 0.")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"--seed {self.seed}: expected a whole number from 0 to 2**63 - 1.")
        for name, allowed in (("param_dtype", PARAM_DTYPES), ("compute_dtype", COMPUTE_DTYPES)):
            if getattr(self, name) not in allowed:
                option = name.replace("_", "-")
                raise UsageError(f"--{option} {getattr(self, name)}: expected one of {', '.join(allowed)}.")

    def _check_saving(self) -> None:
        try:
            if self.save_every:
                check_destination(save_folder(self.save_to))
            if self.resume and (folder := find_saved(self.resume, self.save_to)):
                state = read_state(folder)
                if self.steps <= state.step:
                    raise UsageError(f"--steps {self.steps}: {folder} has done {state.step} already; say more steps.")
        except (OSError, RuntimeError, ValueError) as error:  # a path too long, unreadable, with a NUL, ~nobody
            reason = getattr(error, "strerror", None) or error
            raise UsageError(
                f"--save-to {self.save_to[:80]!r}, --resume {self.resume[:80]!r}: no such place ({reason})."
            ) from None


def parse_settings(argv: list[str], **defaults) -> Settings:
    """Settings from a command line, checked; `defaults` stand in for ours where an option is absent.

    Raises `UsageError` for an unknown option or a bad value.
    """
    settings, unknown = _parser().parse_args_into_dataclasses(
        to_argv(defaults) + argv, return_remaining_strings=True, look_for_args_file=False
    )
    if unknown:
        known = ", ".join("--" + field.name.replace("_", "-") for field in fields(Settings))
        raise UsageError(f"Unknown setting {unknown[0].partition('=')[0]!r}. Settings are {known}.")
    settings.check()
    return settings


def to_argv(options: dict) -> list[str]:
    """The command line a person would type for these settings: `{"batch": 8}` gives `["--batch", "8"]`."""
    argv = []
    for name, value in options.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        argv += [f"--{name.replace('_', '-')}", text]
    return argv


def describe(settings: Settings) -> dict:
    """Settings as JSON: names to plain values."""
    return {name: _plain(value) for name, value in asdict(settings).items()}


def _plain(value):
    # A rank has turned dtype names into torch dtypes; `torch.float32` goes back to `float32`.
    return value if isinstance(value, bool | int | float | str) else str(value).removeprefix("torch.")


@cache
def _parser():
    from transformers import HfArgumentParser  # half a second; only who parses pays for it

    class Parser(HfArgumentParser):
        def error(self, message):
            raise UsageError(f"{message[0].upper()}{message[1:].rstrip('.')}.")

    return Parser(Settings, allow_abbrev=False)
