"""Text to train on: the Python standard library's own sources, cut into windows and shared out over ranks."""

import sysconfig
import zlib
from collections.abc import Iterator
from functools import cache
from itertools import count, islice
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from transformers import AutoTokenizer, ByT5Tokenizer, PretrainedConfig

from ..contract import stand_in
from ..contract.errors import UsageError, first_line
from ..contract.model_source import find_model
from ..contract.settings import Settings

IGNORED = -100  # the target of a position that does not count
HELD_OUT_WINDOWS = 64


def text_batches(config: PretrainedConfig, settings: Settings, rank: int, world_size: int, first: int = 0) -> Iterator:
    """Batches of training text up to `settings.steps`, from step `first`: (inputs, targets) of (batch, seq) each.

    Ranks never share a window within an epoch, and the windows of one step are the same for any number of
    ranks with the same global batch. A file's last window is padded; its padding has target -100.
    """
    if stand_in.playing:
        return stand_in.playing.batches(config, settings)
    windows = Windows("train", config, settings)
    sampler = DistributedSampler(windows, world_size, rank, shuffle=True, seed=settings.seed, drop_last=True)
    if len(sampler) < settings.batch:
        raise UsageError(f"--batch {settings.batch}: {len(windows)} windows do not fill a step on {world_size} ranks.")
    return islice(_epochs(windows, sampler, settings.batch, first), max(0, settings.steps - first))


def held_out_batches(config: PretrainedConfig, settings: Settings, rank: int, world_size: int) -> Iterator:
    """A fixed set of 64 windows from files that training never sees, as (inputs, targets) of (batch, seq).

    Every rank gets the same number of batches, since every rank has to take part in every forward: a rank
    whose windows ran out gets a batch in which no target counts.
    """
    windows = Windows("held-out", config, settings)
    chosen = range(0, len(windows), max(1, len(windows) // HELD_OUT_WINDOWS))[:HELD_OUT_WINDOWS]
    mine = [windows[index] for index in chosen[rank::world_size]]
    nothing = (windows[0][0], torch.full_like(windows[0][1], IGNORED))
    share = -(-len(chosen) // world_size)  # windows per rank, rounded up
    mine += [nothing] * (share - len(mine))
    for start in range(0, share, settings.batch):
        inputs, targets = zip(*mine[start : start + settings.batch], strict=True)
        yield torch.stack(inputs), torch.stack(targets)


def unigram_loss() -> float:
    """Nats per byte of held-out text under the byte frequencies of the training text: what counting alone gives."""
    if stand_in.playing:
        return float("nan")
    counts = torch.ones(256, dtype=torch.float64)  # one each, so that an unseen byte costs a finite amount
    counts += torch.bincount(_bytes("train"), minlength=256)
    return -(counts / counts.sum()).log()[_bytes("held-out")].mean().item()


class Windows(Dataset):
    """Windows of `seq` + 1 tokens over the files of one split, as (inputs, targets) of shape (seq,) each."""

    def __init__(self, split: str, config: PretrainedConfig, settings: Settings):
        self._tokenizer = _tokenizer(config, settings)
        self._seq = settings.seq
        # Characters from one window's start to the next: a byte is a token; a subword rarely has 8 characters.
        self._stride = settings.seq * (1 if isinstance(self._tokenizer, ByT5Tokenizer) else 8)
        self._starts = [(text, at) for text in _texts(split) for at in range(0, len(text) - 1, self._stride)]

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        text, at = self._starts[index]
        piece = text[at : at + self._stride + 1]
        tokens = torch.tensor(self._tokenizer(piece, add_special_tokens=False).input_ids[: self._seq + 1])
        inputs = torch.zeros(self._seq, dtype=torch.long)
        targets = torch.full((self._seq,), IGNORED)
        inputs[: len(tokens) - 1], targets[: len(tokens) - 1] = tokens[:-1], tokens[1:]
        return inputs, targets


def _epochs(windows: Windows, sampler: DistributedSampler, batch: int, first: int) -> Iterator:
    first_epoch, skipped = divmod(first, len(sampler) // batch)
    # A generator of its own: a loader draws a number from it, and dropout's must not depend on how often one begins.
    dice = torch.Generator()
    for epoch in count(first_epoch):
        sampler.set_epoch(epoch)
        order = list(sampler)[skipped * batch :]
        yield from DataLoader(windows, batch, sampler=order, drop_last=True, generator=dice)
        skipped = 0


def _tokenizer(config: PretrainedConfig, settings: Settings):
    source = find_model(settings.model, settings.weights)
    if not source.has_tokenizer:
        return ByT5Tokenizer()  # bytes: needs no files
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # whatever is wrong with the files, they are the reader's
        raise UsageError(f"--model {settings.model}: its tokenizer cannot be read ({first_line(error)}).") from error
    if len(tokenizer) > config.vocab_size:
        raise UsageError(
            f"--model {settings.model}: its tokenizer has {len(tokenizer)} tokens and its config a vocabulary of "
            f"{config.vocab_size}; they belong to different models."
        )
    return tokenizer


@cache
def _texts(split: str) -> list[str]:
    folder = Path(sysconfig.get_path("stdlib"))
    files = [file for file in sorted(folder.glob("*.py")) if _split(file.name) == split]
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in files]
    return [text for text in texts if len(text) > 1]


def _split(name: str) -> str:
    # By a checksum of the name: a file keeps its side when others come or go.
    return "held-out" if zlib.crc32(name.encode()) % 10 == 0 else "train"


def _bytes(split: str) -> torch.Tensor:
    joined = bytearray("".join(_texts(split)).encode())
    return torch.frombuffer(joined, dtype=torch.uint8).long()
