"""1, 2 and 4 ranks on the same global batch train as one process without FSDP does."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForCausalLM

from fsdp2_lab.contract.settings import Settings
from fsdp2_lab.rank.text import text_batches

GLOBAL_BATCH = 4
RELATIVE = 1e-5
CASES = {
    "untied": ("llama", True),
    "tied": ("llama-tied", True),
    "untied, all activations kept": ("llama", False),
    "tied, all activations kept": ("llama-tied", False),
}
PADDED = "untied, ranks with different numbers of tokens"
ACCUMULATED = ["tied", PADDED]


@pytest.fixture(scope="module")
def settings_of(model_folders) -> dict[str, Settings]:
    """The settings of one process for each case; more ranks take a smaller batch each."""
    common = dict(batch=GLOBAL_BATCH, lr=1e-3, compute_dtype="float32")
    settings = {
        case: Settings(model=str(model_folders[model]), seq=64, steps=20, checkpointing=checkpointing, **common)
        for case, (model, checkpointing) in CASES.items()
    }
    settings[PADDED] = _with_padding(Settings(model=str(model_folders["llama"]), seq=256, steps=2, **common))
    return settings


def _with_padding(settings: Settings) -> Settings:
    """The first seed with which a file's short last window is among the first step's."""
    config = AutoConfig.from_pretrained(settings.model)
    for settings.seed in range(500):
        _, targets = next(iter(text_batches(config, settings, 0, 1)))
        counted = (targets != -100).sum(dim=1)
        if counted.min() < settings.seq / 2:
            return settings
    raise AssertionError("no seed puts a short window into the first step")


@pytest.fixture(scope="module")
def plain(settings_of) -> dict[str, dict[str, list[float]]]:
    """Losses and gradient norms of the plain loop: one process, no FSDP, no checkpointing."""
    return {case: _train_plainly(settings) for case, settings in settings_of.items()}


def _train_plainly(settings: Settings) -> dict[str, list[float]]:
    config = AutoConfig.from_pretrained(settings.model)
    torch.manual_seed(settings.seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr)
    found = {"losses": [], "norms": [], "tokens": []}
    for inputs, targets in text_batches(config, settings, 0, 1):
        loss = cross_entropy(model(input_ids=inputs).logits.flatten(0, 1), targets.flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        found["losses"].append(loss.item())
        found["norms"].append(norm.item())
        found["tokens"].append((targets != -100).sum().item())
    return found


@pytest.fixture(scope="module", params=[1, 2, 4], ids=lambda ranks: f"{ranks} ranks")
def trained(request, project, checkout, settings_of):
    """The records of launch/train.py for each case, on 1, 2 and 4 ranks."""
    cases = {case: _argv(settings, request.param) for case, settings in settings_of.items()}
    return project.run_several(checkout / "launch" / "train.py", cases, ranks=request.param)


def _argv(settings: Settings, ranks: int) -> list:
    return [
        *("--model", settings.model, "--batch", GLOBAL_BATCH // ranks, "--seq", settings.seq),
        *("--steps", settings.steps, "--lr", settings.lr, "--compute-dtype", "float32"),
        *("--checkpointing", str(settings.checkpointing).lower(), "--seed", settings.seed),
    ]


@pytest.fixture(scope="module")
def accumulated(project, scripts, settings_of):
    """The same training on 2 ranks in two micro-batches a step, reduced after each or held back until the last."""
    cases = {
        f"{case}, {mode}": [mode, *_argv(settings_of[case], 2)]
        for case in ACCUMULATED
        for mode in ("reduced", "held_back")
    }
    return project.run_several(scripts / "accumulating.py", cases, ranks=2)


@pytest.mark.parametrize("mode", ["reduced", "held_back"])
@pytest.mark.parametrize("case", ACCUMULATED)
def test_micro_batches_add_up_to_the_batch(case, mode, accumulated, plain):
    for record in accumulated[f"{case}, {mode}"]:
        assert [step.loss for step in record.steps] == pytest.approx(plain[case]["losses"], rel=RELATIVE)
        norms = [step.values["grad_norm"] for step in record.steps]
        assert norms == pytest.approx(plain[case]["norms"], rel=RELATIVE)


def test_held_back_gradients_are_whole_and_nothing_of_them_is_clipped(project, checkout):
    records = project.run(checkout / "launch" / "released.py", "--batch", 2, "--seq", 32, ranks=2).run.records
    for record in records:
        row = next(row for row in record.stages if row.name == "held_back")
        assert row.bytes_after - row.bytes_before == pytest.approx(4 * record.values["parameters"], rel=0.01)
        assert record.values["kept_mib"] == pytest.approx(2 * record.values["parameters"] / 2**20, rel=0.01)
        assert record.values["norm_between"] == 0
        assert record.values["norm_reduced_once"] == pytest.approx(record.values["norm_reduced_twice"], rel=RELATIVE)


def test_a_mean_of_means_is_another_gradient_and_says_nothing(project, checkout):
    script, small = checkout / "launch" / "mean_of_means.py", ["--seq", 64, "--steps", 2, "--weights", "random"]
    few, one = (project.run(script, "--batch", 4 // ranks, *small, ranks=ranks).run.records[0] for ranks in (2, 1))
    norms = [record.steps[0].values["grad_norm"] for record in (few, one)]
    assert abs(norms[0] / norms[1] - 1) > 0.01 and few.steps[0].tokens == one.steps[0].tokens


@pytest.mark.parametrize("case", [*CASES, PADDED])
def test_losses_are_those_of_one_process(case, trained, plain):
    for record in trained[case]:
        assert [step.loss for step in record.steps] == pytest.approx(plain[case]["losses"], rel=RELATIVE)


@pytest.mark.parametrize("case", [*CASES, PADDED])
def test_gradient_norms_are_those_of_one_process(case, trained, plain):
    for record in trained[case]:
        norms = [step.values["grad_norm"] for step in record.steps]
        assert norms == pytest.approx(plain[case]["norms"], rel=RELATIVE)


@pytest.mark.parametrize("case", [*CASES, PADDED])
def test_tokens_are_counted_over_all_ranks(case, trained, plain):
    for record in trained[case]:
        assert [step.tokens for step in record.steps] == plain[case]["tokens"]


@pytest.mark.parametrize("case", CASES)
def test_the_loss_on_held_out_text_falls_and_is_the_same_on_every_rank(case, trained):
    before = [record.values["held_out_before"] for record in trained[case]]
    after = [record.values["held_out_after"] for record in trained[case]]
    assert len(set(before)) == len(set(after)) == 1
    assert after[0] < before[0]


def test_the_padded_case_does_split_its_tokens_unevenly(plain, settings_of):
    seq, batch = settings_of[PADDED].seq, settings_of[PADDED].batch
    assert plain[PADDED]["tokens"][0] < seq * batch - seq / 2


def test_the_plain_loop_clips(plain):
    # Without a norm above 1 the parity of clipping would not be tested.
    assert max(plain["untied"]["norms"]) > 1.0
