"""The text: the same windows for any number of ranks, no window twice, held-out files never seen. No launch."""

from itertools import chain

import pytest
import torch
from transformers import AutoConfig

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.settings import Settings
from fsdp2_lab.rank import text
from fsdp2_lab.rank.text import held_out_batches, text_batches, unigram_loss


@pytest.fixture
def config(model_folders, home):
    return AutoConfig.from_pretrained(model_folders["llama"])


def windows(batches) -> list[set[bytes]]:
    """Each step's windows, as something that can be compared."""
    return [{(row.numpy().tobytes()) for row in inputs} for inputs, _ in batches]


def test_a_steps_windows_are_the_same_for_any_number_of_ranks(config):
    one = windows(text_batches(config, Settings(batch=8, steps=5), 0, 1))
    for ranks in (2, 4):
        settings = Settings(batch=8 // ranks, steps=5)
        shares = [windows(text_batches(config, settings, rank, ranks)) for rank in range(ranks)]
        assert [set.union(*step) for step in zip(*shares, strict=True)] == one


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_batches_go_on_where_they_stopped_also_in_a_later_epoch(ranks, config, monkeypatch):
    monkeypatch.setattr(text, "_texts", lambda split: [f"{number} " * 99 for number in range(19)])
    settings = Settings(batch=2, seq=128, steps=60)  # an epoch has fewer than 30 steps
    whole = windows(text_batches(config, settings, ranks - 1, ranks))
    for first in (0, 1, 29, 59):
        assert windows(text_batches(config, settings, ranks - 1, ranks, first)) == whole[first:]
    assert windows(text_batches(config, settings, ranks - 1, ranks, 60)) == []


def test_reading_text_leaves_the_random_numbers_alone(config):
    torch.manual_seed(0)
    next(text_batches(config, Settings(steps=1), 0, 1))
    drawn = torch.rand(1)
    torch.manual_seed(0)
    assert drawn == torch.rand(1)  # or dropout would not go on where it was


def test_ranks_do_not_share_a_window(config):
    settings = Settings(batch=4, steps=20)
    seen = [set.union(*windows(text_batches(config, settings, rank, 3))) for rank in range(3)]
    # A few short windows of license text are alike in many files; whole ones are not.
    assert len(set.union(*seen)) >= 0.99 * sum(map(len, seen))
    assert sum(map(len, seen)) >= 0.99 * 3 * 4 * 20


def test_the_order_follows_the_seed(config):
    first, again, other = (windows(text_batches(config, Settings(steps=3, seed=seed), 0, 1)) for seed in (1, 1, 2))
    assert first == again != other


def test_targets_are_the_inputs_one_token_on(config):
    for inputs, targets in text_batches(config, Settings(steps=10), 0, 1):
        counted = targets[:, :-1] != text.IGNORED
        assert torch.equal(inputs[:, 1:][counted], targets[:, :-1][counted])


def test_held_out_files_are_not_trained_on():
    train, held_out = set(text._texts("train")), set(text._texts("held-out"))
    assert len(train) > len(held_out) > 5
    assert not train & held_out


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_held_out_windows_are_the_same_for_any_number_of_ranks_and_each_counts_once(ranks, config):
    settings = Settings(batch=4)
    alone = list(held_out_batches(config, settings, 0, 1))
    shares = [list(held_out_batches(config, settings, rank, ranks)) for rank in range(ranks)]
    assert len({len(share) for share in shares}) == 1  # every rank takes part in every forward

    def counted(batches):
        return sorted(row.numpy().tobytes() for _, targets in batches for row in targets if (row != -100).any())

    assert counted(chain(*shares)) == counted(alone)
    assert len(counted(alone)) == text.HELD_OUT_WINDOWS


def test_counting_bytes_alone_predicts_text_badly_but_better_than_nothing():
    assert 2.0 < unigram_loss() < torch.log(torch.tensor(256.0)).item()


def test_a_batch_larger_than_the_text_is_refused(config, is_one_sentence):
    with pytest.raises(UsageError, match="--batch 10000000") as caught:
        text_batches(config, Settings(batch=10_000_000), 0, 2)
    assert is_one_sentence(str(caught.value))
