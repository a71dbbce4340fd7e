"""A training state saved on 1 to 4 ranks goes on on 1 to 4 ranks, and survives whatever ends a run while it saves."""

import json
from pathlib import Path

import pytest
from safetensors import safe_open

from fsdp2_lab.contract.record import read_records
from fsdp2_lab.contract.saved_state import LOCK_FILE, finished_steps, read_state, unfinished
from fsdp2_lab.lab import warm
from fsdp2_lab.lab.launcher import execute
from fsdp2_lab.lab.live.progress import Progress

RANKS = (1, 2, 3, 4)
GLOBAL_BATCH = 12  # divides by all of them
STEPS, SAVED = 10, 5
RELATIVE = 1e-5
# Two rows of keys and values: on 3 and 4 ranks some hold none of them. 64 columns do not divide by 3 either.
NARROW = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_hidden_layers": 2,
    "vocab_size": 384,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 2,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "tie_word_embeddings": True,
}
DROPOUT = {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}


@pytest.fixture(scope="module")
def models(tmp_path_factory, model_folders) -> dict[str, str]:
    gpt2 = json.loads((model_folders["gpt2"] / "config.json").read_text())
    folders = {}
    for name, config in {"narrow": NARROW, "dropout": gpt2 | DROPOUT}.items():
        folders[name] = tmp_path_factory.mktemp("saving") / name
        folders[name].mkdir()
        (folders[name] / "config.json").write_text(json.dumps(config))
    return folders


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Launches a script in a project of its own, on warm ranks: most of a launch is imports otherwise."""
    home = tmp_path_factory.mktemp("saving_project")

    def run(script: Path, *argv, ranks: int = 2):
        return execute(script, ranks, list(map(str, argv)), 120, Progress(), warm=None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FSDP2_LAB_HOME", str(home))
        yield run
        warm.stop()


@pytest.fixture(scope="module")
def train(start, checkout, scripts, models, tmp_path_factory):
    """`train(ranks, {case: settings})`: rank 0's record of each case, all of them in one launch."""

    def run(ranks: int, cases: dict[str, dict]):
        folder, plan = tmp_path_factory.mktemp("cases"), []
        for case, options in cases.items():
            common = {"model": "narrow", "batch": GLOBAL_BATCH // ranks, "seq": 32, "steps": STEPS, "lr": 1e-3}
            options = common | {"compute_dtype": "float32"} | options
            options["model"] = models[options["model"]]
            argv = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", str(value))]
            plan.append([str(folder / case), argv])
        (folder / "plan.json").write_text(json.dumps(plan))
        ended = start(scripts / "several.py", checkout / "launch" / "train.py", folder / "plan.json", ranks=ranks)
        assert ended.status == "ok", ended.failure()
        return {case: read_records(folder / case)[0] for case in cases}

    return run


@pytest.fixture(scope="module")
def saved(train, tmp_path_factory):
    """Where each number of ranks saved, and the steps it made from beginning to end; every second saves in a thread."""
    folder = tmp_path_factory.mktemp("states")
    found = {}
    for ranks in RANKS:
        cases = {
            "whole": {"save_every": SAVED, "save_to": folder / f"{ranks}", "save_async": str(ranks % 2 == 0).lower()}
        }
        if ranks == 2:
            cases["dropout"] = {"model": "dropout", "save_every": SAVED, "save_to": folder / "dropout"}
        found[ranks] = train(ranks, cases)
    return folder, found


@pytest.fixture(scope="module")
def resumed(train, saved):
    """The steps of each number of ranks after resuming from each, and where it saved its last state."""
    folder, _ = saved
    found = {}
    for ranks in RANKS:
        cases = {
            f"from-{writers}": {
                "resume": folder / f"{writers}" / f"step-{SAVED}",
                "save_every": SAVED,
                "save_to": folder / f"{writers}-{ranks}",
            }
            for writers in RANKS
        }
        if ranks == 2:
            cases["dropout"] = {
                "model": "dropout",
                "resume": folder / "dropout" / f"step-{SAVED}",
                "save_every": SAVED,
                "save_to": folder / "dropout-resumed",
            }
        found[ranks] = train(ranks, cases)
    return found


def tensors_of(folder) -> dict:
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as shards:
            found |= {(file.name, name): shards.get_tensor(name) for name in sorted(shards.keys())}
    return found


def losses(record) -> list[float]:
    return [step.loss for step in record.steps]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("writers", RANKS)
def test_a_state_goes_on_along_the_curve_on_any_number_of_ranks(writers, ranks, saved, resumed):
    _, whole = saved
    record, one = resumed[ranks][f"from-{writers}"], whole[1]["whole"]
    assert [step.step for step in record.steps] == list(range(SAVED, STEPS))
    assert [step.timed for step in record.steps[:3]] == [False, False, True] and record.steps[1].peak_bytes
    assert losses(record) == pytest.approx(losses(one)[SAVED:], rel=RELATIVE)
    assert [step.tokens for step in record.steps] == [step.tokens for step in one.steps][SAVED:]
    assert record.values["held_out_after"] == pytest.approx(one.values["held_out_after"], rel=RELATIVE)


@pytest.mark.parametrize("ranks", RANKS)
def test_on_as_many_ranks_it_goes_on_to_the_bit(ranks, saved, resumed):
    folder, whole = saved
    assert losses(resumed[ranks][f"from-{ranks}"]) == losses(whole[ranks]["whole"])[SAVED:]
    one, other = (tensors_of(folder / name / f"step-{STEPS}") for name in (f"{ranks}", f"{ranks}-{ranks}"))
    assert one.keys() == other.keys()
    assert all(one[name].equal(other[name]) for name in one)


def test_dropout_goes_on_to_the_bit_too(saved, resumed):
    folder, whole = saved
    assert losses(resumed[2]["dropout"]) == losses(whole[2]["dropout"])[SAVED:]
    one, other = (tensors_of(folder / name / f"step-{STEPS}") for name in ("dropout", "dropout-resumed"))
    assert all(one[name].equal(other[name]) for name in one)


def test_the_states_of_all_numbers_of_ranks_name_the_same_tensors(saved):
    folder, _ = saved
    states = [read_state(folder / f"{ranks}" / f"step-{SAVED}") for ranks in RANKS]
    named = [{name: of for name, of in state.tensors.items() if not name.startswith("random.")} for state in states]
    assert all(each == named[0] for each in named)
    assert not [name for name in named[0] if "lm_head" in name]  # tied: its second name


def test_nothing_in_a_state_is_a_pickle(saved):
    folder, _ = saved
    assert {file.suffix for file in folder.rglob("*") if file.is_file() and file.name != LOCK_FILE} == {
        ".safetensors",
        ".json",
    }


# What is killed at which moment: of which rank, of which save or call, in a thread or not, and the newest state then.
KILLS = {
    "a file just opened": ("opened", 1, 2, False, 4),
    "a file just opened, in the thread": ("opened", 0, 2, True, 4),
    "files written, not synced": ("written", 1, 2, False, 4),
    "all but the renaming, in the thread": ("complete", 0, 2, True, 4),
    "just renamed": ("renamed", 0, 2, False, 8),
    "while an older one is removed": ("pruning", 0, 1, False, 8),
}
OF_THE_KILLED = {"batch": 2, "steps": 12, "save_every": 4, "save_keep": 1}


@pytest.fixture(scope="module")
def struck(start, checkout, scripts, models, tmp_path_factory):
    """`struck(moment, rank, call, in_thread)`: the folder of a run that was struck while it saved, and its end."""

    def run(moment: str, rank: int, call: int, in_thread: bool):
        folder = tmp_path_factory.mktemp("struck") / "states"
        ended = start(
            *(scripts / "struck_while_saving.py", checkout / "launch" / "train.py", moment, rank, call),
            *("--model", models["narrow"], "--batch", 2, "--seq", 32, "--steps", 12, "--save-every", 4, "--lr", 1e-3),
            *("--save-to", folder, "--save-async", str(in_thread).lower(), "--save-keep", 1),
        )
        return folder, ended

    return run


@pytest.fixture(scope="module")
def killed(struck):
    return {name: struck(*how) for name, (*how, _) in KILLS.items()}


@pytest.fixture(scope="module")
def recovered(killed, train):
    """Each killed run, started again with `--resume latest`; and one that was never killed."""
    newest = {name: list(finished_steps(folder).items())[-1] for name, (folder, _) in killed.items()}
    whole = {name: (step, read_state(path).step) for name, (step, path) in newest.items()}
    cases = {name: OF_THE_KILLED | {"save_to": folder, "resume": "latest"} for name, (folder, _) in killed.items()}
    return whole, train(2, {"never killed": {"batch": 2, "steps": 12}} | cases)


@pytest.mark.parametrize("name", KILLS)
def test_a_kill_while_saving_leaves_the_newest_whole_state_to_go_on_from(name, killed, recovered):
    _, ended = killed[name]
    assert ended.status == "failed" and ended.error.type == "SIGKILL"
    whole, records = recovered
    newest = KILLS[name][-1]
    assert whole[name] == (newest, newest)
    assert losses(records[name]) == losses(records["never killed"])[newest:]


@pytest.mark.parametrize("name", KILLS)
def test_the_next_run_clears_away_what_was_unfinished(name, killed, recovered):
    folder, _ = killed[name]
    assert [path.name for path in folder.iterdir() if path.name != LOCK_FILE] == ["step-12"]


@pytest.mark.parametrize("in_thread", [False, True], ids=["at once", "in the thread"])
def test_a_full_disk_is_one_sentence_and_the_state_before_stays(in_thread, struck, is_one_sentence):
    folder, ended = struck("full", 1, 2, in_thread)
    assert ended.status == "failed" and ended.error.type == "UsageError"
    assert "step-8 could not be saved (rank 1: " in ended.error.message and is_one_sentence(ended.error.message)
    assert list(finished_steps(folder)) == [4] and unfinished(folder) == []
    assert read_state(folder / "step-4").step == 4
