"""What cannot be resumed or saved to is said in one sentence, and nothing is written over. One process, no launch."""

import fcntl
import json
import shutil

import pytest
import torch
from torch import nn

from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.saved_state import LOCK_FILE, finished_steps, read_state
from fsdp2_lab.contract.settings import Settings
from fsdp2_lab.rank import TrainingState

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.distributed is disabled")


def trained(wide: int = 4, steps: int = 2, optimizer=torch.optim.AdamW, extra: bool = False, **settings):
    """A small model after some steps, with its training state; `settings` are those of the state."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, wide), nn.Linear(wide, 2), *([nn.Linear(2, 2)] if extra else []))
    optimizer = optimizer(model.parameters(), lr=0.1)
    state = TrainingState(model, optimizer, Settings(**{"save_every": 2, **settings}))
    first = state.resume()
    for _ in range(first, steps):
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        state.save_when_due()
    state.close()
    return model, first


@pytest.fixture
def folder(tmp_path):
    """Where a run saved its states of steps 2 and 4."""
    trained(steps=4, save_to=str(tmp_path / "states"))
    return tmp_path / "states"


def test_one_process_saves_and_resumes(folder):
    resumed, first = trained(steps=6, resume="latest", save_to=str(folder))
    whole, _ = trained(steps=6, save_every=0)
    assert first == 4 and list(finished_steps(folder)) == [2, 4, 6]
    assert all(one.equal(other) for one, other in zip(resumed.parameters(), whole.parameters(), strict=True))


def test_the_saved_learning_rate_counts_and_is_said(folder, capsys):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    state = TrainingState(model, optimizer, Settings(resume=str(folder / "step-4")))
    assert state.resume() == 4 and optimizer.param_groups[0]["lr"] == 0.1
    assert "the saved one, 0.1, not 0.5" in capsys.readouterr().out


def _cut(step):
    file = next(step.glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-1])


def _scribble(step):
    file = next(step.glob("*.safetensors"))
    file.write_bytes(b"\xff" * file.stat().st_size)


def _state(**changed):
    def change(step):
        state = json.loads((step / "state.json").read_text())
        (step / "state.json").write_text(json.dumps(state | changed))

    return change


SPOILED = {
    "a file that is cut off": (_cut, "bytes of"),
    "a file that is missing": (lambda step: next(step.glob("*.safetensors")).unlink(), "lacks shard-00001"),
    "a file too many": (lambda step: (step / "other.safetensors").write_text(""), "does not name"),
    "a file of nonsense": (_scribble, "cannot be read"),
    "no state.json": (lambda step: (step / "state.json").unlink(), "has no state.json"),
    "a state.json cut off": (lambda step: (step / "state.json").write_text("{"), "cannot be read"),
    "a state.json of nonsense": (lambda step: (step / "state.json").write_text("[1]"), "cannot be read"),
    "a state.json that is deep": (lambda step: (step / "state.json").write_text("[" * 10**5), "cannot be read"),
    "a newer schema": (_state(schema=2), "schema"),
    "a step below 1": (_state(step=0), "cannot be read"),
    "a file elsewhere": (_state(files={"../../x.safetensors": 1}), "cannot be read"),
    "a pickle's name": (_state(files={"x.pt": 1}), "cannot be read"),
}


@pytest.mark.parametrize("case", SPOILED)
def test_a_spoiled_state_is_one_sentence(case, folder, is_one_sentence):
    spoil, said = SPOILED[case]
    spoil(folder / "step-4")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with pytest.raises(UsageError, match=said) as caught:
        trained(steps=6, resume=str(folder / "step-4"), save_to=str(folder))
    assert is_one_sentence(str(caught.value))
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


OTHERS = {
    "other shapes": ({"wide": 5}, "0.weight as float32"),
    "more layers": ({"extra": True}, "lacks 2.weight"),
    "another optimizer": ({"optimizer": torch.optim.SGD}, "saved with AdamW, and this run has SGD"),
    "another batch": ({"batch": 5}, "say --batch 4"),
    "another seed": ({"seed": 1}, "--seed 0"),
    "other lengths": ({"seq": 64}, "--seq 128"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_another_run_cannot_go_on_from_it(case, folder, is_one_sentence):
    options, said = OTHERS[case]
    with pytest.raises(UsageError, match=said) as caught:
        trained(steps=6, resume=str(folder / "step-4"), save_to=str(folder), **options)
    assert is_one_sentence(str(caught.value))
    assert list(finished_steps(folder)) == [2, 4]


def test_fewer_layers_are_named(tmp_path):
    trained(extra=True, save_to=str(tmp_path / "states"))
    with pytest.raises(UsageError, match=r"has 2\.\w+, which this run has not"):
        trained(steps=6, resume=str(tmp_path / "states" / "step-2"), save_to=str(tmp_path / "new"))


@pytest.mark.parametrize("name", ["", "nowhere", "step-4.12345678.unfinished"])
def test_a_folder_that_is_no_state_is_one_sentence(name, folder, is_one_sentence):
    if name.endswith("unfinished"):
        shutil.copytree(folder / "step-4", folder / name)
    with pytest.raises(UsageError) as caught:
        trained(resume=str(folder / name), save_to=str(folder))
    assert is_one_sentence(str(caught.value))


def test_a_folder_of_states_is_answered_with_the_newest(folder):
    with pytest.raises(UsageError, match=r"resume from .*step-4"):
        trained(resume=str(folder), save_to=str(folder))


def test_latest_begins_anew_where_nothing_is_saved(tmp_path, capsys):
    _, first = trained(resume="latest", save_to=str(tmp_path / "states"))
    assert first == 0 and "begins at step 0" in capsys.readouterr().out
    assert list(finished_steps(tmp_path / "states")) == [2]


def test_a_run_does_not_write_over_one_that_went_further(folder, is_one_sentence):
    for options in ({}, {"resume": str(folder / "step-2")}):
        with pytest.raises(UsageError, match="has step-4 already") as caught:
            trained(save_to=str(folder), **options)
        assert is_one_sentence(str(caught.value))
    assert list(finished_steps(folder)) == [2, 4]


def test_a_folder_with_something_else_in_it_is_left_alone(folder, is_one_sentence):
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds 'notes.txt'") as caught:
        trained(steps=6, resume="latest", save_to=str(folder))
    assert is_one_sentence(str(caught.value))


def test_two_runs_do_not_save_to_one_folder(folder, is_one_sentence):
    with open(folder / LOCK_FILE, "a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="Another run saves to") as caught:
            trained(steps=6, resume="latest", save_to=str(folder))
        assert is_one_sentence(str(caught.value))


def test_a_file_in_the_place_of_the_folder_is_one_sentence(tmp_path, is_one_sentence):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "states"):
        with pytest.raises(UsageError) as caught:
            trained(save_to=str(place))
        assert is_one_sentence(str(caught.value))


def test_the_newest_are_kept_and_what_was_unfinished_goes(folder):
    (folder / "step-6.0123abcd.unfinished").mkdir()
    trained(steps=8, resume="latest", save_to=str(folder), save_keep=2)
    assert list(finished_steps(folder)) == [6, 8]
    assert sorted(path.name for path in folder.iterdir()) == [LOCK_FILE, "step-6", "step-8"]


def test_settings_say_it_before_any_rank_starts(folder, home):
    with pytest.raises(UsageError, match="has done 4 already"):
        Settings(resume=str(folder / "step-4"), steps=4).check()
    with pytest.raises(UsageError, match="is no folder to resume from"):
        Settings(resume=str(folder / "step-5")).check()
    for place in ("x" * 5000, "a\0b"):
        with pytest.raises(UsageError, match=r"no such place|is no folder"):
            Settings(resume=place).check()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="which is no saved state"):
        Settings(save_every=1, save_to=str(folder)).check()


def test_a_state_says_what_it_is(folder):
    state = read_state(folder / "step-4")
    assert (state.step, state.ranks, state.sequences, state.optimizer) == (4, 1, 4, "AdamW")
    assert state.tensors["model.0.weight"].shape == [4, 3] and state.facts["param_groups.0.weight.lr"] == 0.1
