"""Dry runs and rehearsals of real scripts, each in a process of its own."""

import json
from pathlib import Path

import pytest

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.settings import to_argv
from fsdp2_lab.predict.account import account
from fsdp2_lab.predict.dryrun import dryrun_script
from fsdp2_lab.predict.rehearse import rehearse_script

OWN = Path(__file__).parent / "scripts" / "steps.py"
TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 172,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 384,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
LLAMA_405B = {
    "hidden_size": 16384,
    "intermediate_size": 53248,
    "num_hidden_layers": 126,
    "num_attention_heads": 128,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
SLIDING = {"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 8}
JOBS = {
    "checkpointing": (2, {}, {}),
    "no checkpointing, tied": (2, {"checkpointing": False}, {"tie_word_embeddings": True}),
    "rows that do not divide, kept gathered": (3, {"reshard": False}, {"intermediate_size": 171, "vocab_size": 391}),
    "a large vocabulary that does not divide": (3, {"batch": 1, "seq": 32}, {"vocab_size": 32000}),
    "the same in bfloat16": (
        3,
        {"batch": 1, "seq": 32, "compute_dtype": "bfloat16"},
        {"vocab_size": 32000, "tie_word_embeddings": True},
    ),
    "one rank": (1, {"batch": 1}, {}),
    "qwen3, fewer layers than are played": (1, {"batch": 1}, {"model_type": "qwen3", "head_dim": 16}),
    "qwen3, extended": (4, {"seq": 32}, {"model_type": "qwen3", "head_dim": 16, "num_hidden_layers": 9}),
}


@pytest.fixture
def model(tmp_path):
    """Makes a folder with a config and nothing else: the tiny model with some changes."""

    def make(**changes) -> Path:
        folder = tmp_path / f"model-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(TINY | changes))
        return folder

    return make


@pytest.fixture
def train(checkout) -> Path:
    return checkout / "launch" / "train.py"


@pytest.mark.parametrize(("ranks", "settings", "changes"), JOBS.values(), ids=JOBS)
def test_a_dry_run_says_what_a_rehearsal_measures(ranks, settings, changes, model, train):
    argv = to_argv({"model": model(**changes), **settings})
    dry, real = dryrun_script(train, ranks, argv, "cpu"), rehearse_script(train, ranks, argv)
    assert dry.peak_bytes == pytest.approx(real.peak_bytes, rel=1e-4)
    assert dry.step0_peak_bytes == pytest.approx(real.step0_peak_bytes, rel=1e-4)
    assert dry.parameters == real.parameters > 0
    assert sum(dry.terms.values()) == dry.peak_bytes and sum(dry.step0_terms.values()) == dry.step0_peak_bytes
    assert (dry.how, real.how) == ("dry run (CPU)", "rehearsed (CPU)")


def test_an_extended_dry_run_agrees_with_the_full_one_to_the_byte(model, train):
    argv = to_argv({"model": model(num_hidden_layers=11)})
    for device in ("cpu", "cuda"):
        extended, full = (dryrun_script(train, 2, argv, device, full_depth=full) for full in (False, True))
        assert (extended.depths_played, full.depths_played) == ([4, 5, 6], [11])
        for name in ("peak_bytes", "step0_peak_bytes", "terms", "step0_terms", "parameters", "peak_at"):
            assert getattr(extended, name) == getattr(full, name), name


def test_layers_of_several_kinds_are_played_in_full_and_said(model, train):
    kinds = ["full_attention", "sliding_attention"] * 4
    folder = model(model_type="qwen3", head_dim=16, num_hidden_layers=8, layer_types=kinds, **SLIDING)
    told = dryrun_script(train, 2, to_argv({"model": folder, "batch": 1, "seq": 16}), "cpu")
    assert told.depths_played == [8] and "kinds" in told.notes[0]


def test_405b_on_1024_ranks_needs_seconds_and_little_memory(model, train):
    told = dryrun_script(train, 1024, to_argv({"model": model(**LLAMA_405B), "batch": 1, "seq": 4096}), "cuda")
    assert told.parameters == 405_853_388_800 and told.depths_played == [4, 5, 6]
    assert told.terms["optimizer"] == pytest.approx(8 * told.parameters / 1024, rel=1e-3)
    assert told.rss_peak_bytes < 2**30
    assert told.seconds < 60  # 9 s on two idle cores


def test_supposing_cuda_counts_as_its_allocator_does(model, train):
    told = dryrun_script(train, 2, to_argv({"model": model(), "batch": 1, "seq": 16}), "cuda")
    assert told.how == "dry run (CUDA)"
    assert all(size % 512 == 0 for size in told.terms.values())


def test_a_script_of_the_readers_own_is_played():
    dry, real = dryrun_script(OWN, 2, [], "cpu"), rehearse_script(OWN, 2, [])
    assert dry.peak_bytes == pytest.approx(real.peak_bytes, abs=64)
    assert dry.parameters == real.parameters == 8 * 8 + 8
    assert dry.terms["sharded_parameters"] == (8 * 8 + 8) * 4 / 2
    assert max(stretch["live_bytes"] for stretch in dry.curve) == dry.peak_bytes


@pytest.mark.parametrize("play", [dryrun_script, rehearse_script])
def test_what_is_played_leaves_checkpoints_alone(play, home, checkout):
    kept = home / "checkpoints" / "byte-llama-tied" / "model.safetensors"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"learnt in earnest")
    assert play(checkout / "launch" / "pretrain.py", 1, ["--batch", "1", "--seq", "16"]).parameters > 0
    assert kept.read_bytes() == b"learnt in earnest"
    assert [path.name for path in home.iterdir()] == ["checkpoints"]


@pytest.mark.parametrize(
    ("argv", "named"),
    [(["item"], "loss.item()"), (["file"], "torch.load"), (["shape"], "ones(2, 9)"), (["once"], "1 of the 2 steps")],
    ids=lambda value: str(value),
)
def test_what_cannot_be_played_is_one_sentence_with_the_line(argv, named, is_one_sentence):
    with pytest.raises(UsageError) as raised:
        dryrun_script(OWN, 2, argv, "cpu")
    assert named in str(raised.value) and OWN.name in str(raised.value)
    assert is_one_sentence(str(raised.value)), str(raised.value)


@pytest.mark.parametrize(
    ("script", "ranks", "argv", "device"),
    [
        ("launch/train.py", 0, [], "cpu"),
        ("launch/train.py", True, [], "cpu"),
        ("launch/train.py", 2, [], "tpu"),
        ("launch/train.py", 2, ["--seq", "0"], "cpu"),
        ("launch/train.py", 2, ["--model", "none"], "cpu"),
        ("launch/none.py", 2, [], "cpu"),
        ("launch/mesh.py", 2, [], "cpu"),
        ("README.md", 2, [], "cpu"),
    ],
)
def test_a_bad_request_is_one_sentence_before_anything_starts(script, ranks, argv, device, checkout, is_one_sentence):
    with pytest.raises(UsageError) as raised:
        dryrun_script(checkout / script, ranks, argv, device)
    assert is_one_sentence(str(raised.value))


def test_a_script_that_waits_for_ever_is_ended_at_its_deadline(tmp_path, is_one_sentence):
    script = tmp_path / "waits.py"
    script.write_text("import time\n# open_record( .steps(\ntime.sleep(600)\n")
    for predict in (dryrun_script, rehearse_script):
        with pytest.raises(UsageError, match="within 5 s") as caught:
            predict(script, 2, [], timeout=5)
        assert is_one_sentence(str(caught.value))
        with pytest.raises(UsageError, match="timeout=0"):
            predict(script, 2, [], timeout=0)


def test_dropout_in_attention_is_fused_on_cuda(train):
    argv = to_argv({"model": "gpt2", "batch": 1, "seq": 256})
    predicted = account("gpt2", 4, batch=1, seq=256, device="cuda")
    assert dryrun_script(train, 4, argv, "cuda").peak_bytes == pytest.approx(predicted.peak_bytes, rel=0.03)
