"""The planner: every control over its range, the dry run's button, the command, and the twin without widgets."""

import json
import shlex
from base64 import b64encode
from itertools import product
from types import SimpleNamespace

import pytest
from matplotlib.colors import to_hex

from fsdp2_lab import show
from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.settings import parse_settings
from fsdp2_lab.contract.terms import TERMS
from fsdp2_lab.contract.units import GIB, format_bytes
from fsdp2_lab.predict.prediction import Prediction
from fsdp2_lab.show import labels, planned_job
from fsdp2_lab.show.palette import TERM_COLOURS
from fsdp2_lab.show.planned_job import PlannedJob, static_twin

PNG = b64encode(b"\x89PNG\r\n")[:8].decode()
SLIDERS = ("ranks", "gib_per_gpu", "batch", "seq")
TICKS = ("checkpointing", "reshard")
ENDS = {"ranks": (1, 1024), "gib_per_gpu": (16, 288), "batch": (1, 128), "seq": (128, 131072)}


def said(controls) -> str:
    return controls.words.content["text/html"]


@pytest.fixture
def controls():
    return show.planner("llama-3.1-8b", ranks=8, gib_per_gpu=40, batch=1, seq=1024).controls


@pytest.fixture
def no_figures(monkeypatch):
    monkeypatch.setattr(PlannedJob, "figure", lambda job: None)


@pytest.fixture
def dry_run(monkeypatch):
    """A dry run that answers at once; what it was asked, and what the button showed meanwhile, is in the list."""
    asked = []

    def play(*stage, **settings):
        asked.append((*stage, settings))
        if settings["batch"] == 13:
            raise UsageError("launch/train.py could not be played.")
        return Prediction("dry run (CUDA)", stage[1], 1, 20 * GIB, 10 * GIB, "backward", seconds=8.4)

    monkeypatch.setattr(planned_job, "dryrun", play)
    return asked


@pytest.mark.parametrize("name", SLIDERS)
def test_a_slider_at_its_ends_changes_the_job_the_words_and_the_figure(controls, name):
    slider = controls.settings[name]
    values = [value for _, value in slider.options]
    assert values == sorted(values) and (values[0], values[-1]) == ENDS[name]
    for value in reversed(ENDS[name]):
        words, image = controls.words.content, controls.picture.content
        slider.value = value
        assert getattr(controls.job, name) == value
        assert controls.words.content != words
        assert controls.picture.content["image/png"].startswith(PNG) and controls.picture.content != image


@pytest.mark.parametrize("name", TICKS)
def test_a_tick_changes_the_job_the_words_and_the_figure(controls, name):
    words, image = controls.words.content, controls.picture.content
    controls.settings[name].value = False
    assert getattr(controls.job, name) is False
    assert controls.words.content != words and controls.picture.content != image
    controls.settings[name].value = True
    assert (controls.words.content, controls.picture.content) == (words, image)


@pytest.mark.parametrize("name", SLIDERS)
def test_the_places_of_a_slider_have_an_answer(controls, no_figures, name):
    slider = controls.settings[name]
    for _, value in slider.options[:: len(slider.options) // 16 + 1]:
        slider.value = value
        fits = controls.job.fit
        assert str(fits) in said(controls)
        assert f"--{name}" in controls.job.command or name in ("ranks", "gib_per_gpu")


@pytest.mark.parametrize("model", ["byte-llama", "gpt2-xl", "llama-3.2-1b", "llama-3.1-405b"])
def test_all_ends_in_all_combinations_have_an_answer_or_a_sentence(model, is_one_sentence):
    for values in product(*ENDS.values(), (True, False), (True, False)):
        job = PlannedJob(model, **dict(zip((*ENDS, *TICKS), values, strict=True)))
        lines = job.lines()
        if len(lines) == 1:
            assert "positions for" in lines[0] and job.figure() is None
        else:
            assert lines[1].startswith(("It fits", "It does not fit"))
            assert lines[1].startswith("It fits") == job.fit.value
        assert all(is_one_sentence(line) for line in lines[1:] or lines)


def test_the_fit_agrees_with_the_smallest_n_and_the_largest_batch():
    for ranks, gib, batch in product((1, 4, 64), (16, 40, 80), (1, 16)):
        job = PlannedJob("llama-2-7b", ranks, gib, batch, 2048)
        fewest, most = job.smallest_ranks.value, job.largest_batch.value
        assert job.fit.value == bool(most and most >= batch) == bool(fewest and fewest <= ranks)


def test_a_known_model_and_a_folder_take_turns(controls, tmp_path, no_figures):
    config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 2048, "vocab_size": 384}
    (tmp_path / "config.json").write_text(json.dumps(config))
    controls.folder.value = f" {tmp_path} "
    assert (controls.job.model, controls.model.value) == (str(tmp_path), None)
    controls.model.value = "gpt2-xl"
    assert (controls.job.model, controls.folder.value) == ("gpt2-xl", "")
    assert "gpt2-xl" in said(controls)
    controls.folder.value = "/no/<b>such</b>/folder"
    assert "no such folder" in said(controls) and "<b>" not in said(controls)
    assert controls.picture.content == {"text/plain": ""}
    controls.folder.value = ""
    controls.model.value = "gpt2"
    assert controls.job.model == "gpt2"


def test_two_planners_keep_apart():
    one, other = show.planner("gpt2", seq=128), show.planner("gpt2", seq=128)
    words = said(other.controls)
    one.controls.settings["ranks"].value = 64
    assert (one.job.ranks, other.job.ranks) == (64, 4)
    assert said(other.controls) == words != said(one.controls)


def test_the_button_shows_that_it_runs_then_the_number_and_the_difference(controls, dry_run):
    states = []
    controls.job.watchers.append(lambda: states.append((controls.button.disabled, said(controls))))
    controls.button.click()
    (asked,) = dry_run
    assert asked[:2] == ("train", 8)
    assert asked[2] == dict(device="cuda", model="llama-3.1-8b", batch=1, seq=1024, checkpointing=True, reshard=True)
    (busy, running), (_, ended) = states
    assert busy and "takes some seconds" in running
    predicted = controls.job.fit.account.peak_bytes
    assert "dry run (CUDA): 20.00 GiB, found in 8 s." in ended
    assert f"Predicted are {format_bytes(predicted)}, {predicted / (20 * GIB) - 1:+z.2%} against it." in ended
    assert (controls.button.disabled, controls.button.description) == (False, labels.PLAN_BUTTON)
    assert [line.get_label() for line in controls.job.figure().axes[1].lines].count(labels.DRY_RUN) == 1


def test_another_job_has_not_been_dry_run(controls, dry_run):
    controls.button.click()
    controls.settings["ranks"].value = 16
    assert controls.job.confirmed is None
    assert "20.00 GiB" not in said(controls) and labels.PLAN_NOT_DRY_RUN in said(controls)


def test_a_dry_run_that_fails_says_so_and_the_button_can_be_pressed_again(controls, dry_run):
    controls.settings["batch"].value = 13
    controls.button.click()
    assert "No dry run: launch/train.py could not be played." in said(controls)
    assert not controls.button.disabled
    controls.settings["batch"].value = 12
    controls.button.click()
    assert "20.00 GiB" in said(controls)


def test_a_dry_run_that_is_interrupted_runs_no_more(controls, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(planned_job, "dryrun", interrupted)
    with pytest.raises(KeyboardInterrupt):
        controls.job.dry_run()
    assert controls.job.dry_run_line == labels.PLAN_NOT_DRY_RUN
    assert labels.PLAN_NOT_DRY_RUN in said(controls)


def test_a_model_without_a_closed_form_can_still_be_dry_run(dry_run, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma2"}))
    job = PlannedJob(str(tmp_path))
    assert job.dry_run() and job.dry_run_line == "dry run (CUDA): 20.00 GiB, found in 8 s."


@pytest.mark.parametrize("ranks", [1, 2, 6, 8, 11, 12, 16, 1024])
def test_the_command_starts_that_many_ranks_with_those_settings(ranks):
    from torch.distributed.run import get_args_parser

    job = PlannedJob("llama-3.2-1b", ranks, 80, 3, 512, checkpointing=False)
    program, *argv = shlex.split(job.command.replace("$NODE_RANK", "0"))
    asked = get_args_parser().parse_args(argv)
    nodes = int(asked.nnodes.split(":")[-1])
    assert program == "torchrun" and nodes * int(asked.nproc_per_node) == ranks
    assert nodes == 1 or int(asked.nproc_per_node) <= 8
    assert (nodes == 1) == asked.standalone
    assert asked.training_script == "launch/train.py"
    settings = parse_settings(asked.training_script_args)
    assert (settings.model, settings.batch, settings.seq) == ("llama-3.2-1b", 3, 512)
    assert (settings.checkpointing, settings.reshard) == (False, True)


def test_a_folder_with_a_space_and_a_dollar_stays_one_argument(tmp_path):
    folder = tmp_path / "my $HOME; model"
    folder.mkdir()
    config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 2048, "vocab_size": 384}
    (folder / "config.json").write_text(json.dumps(config))
    assert str(folder) in shlex.split(PlannedJob(str(folder)).command)


def test_the_twin_has_the_figure_and_the_words_of_the_same_job():
    job = PlannedJob("llama-2-7b", 4, 24, 1, 2048)
    figure, text = static_twin(job)
    assert text.splitlines()[0].startswith("predicted (CUDA), llama-2-7b, one of 4 ranks, batch 1 of 2,048 tokens")
    assert str(job.fit) in text and str(job.smallest_ranks) in text and str(job.largest_batch) in text
    assert "supposed, not measured" in text and text.splitlines()[-1] == job.command
    terms, curve = figure.axes
    drawn = {patch.get_facecolor(): patch.get_width() for patch in terms.patches}
    predicted = job.fit.account.terms
    for term in TERMS:
        if predicted[term] > GIB:
            (width,) = [width for colour, width in drawn.items() if to_hex(colour) == TERM_COLOURS[term].lower()]
            assert width == pytest.approx(predicted[term] / GIB)
            assert labels.TERM_NAMES[term] in [tick.get_text() for tick in terms.get_yticklabels()]
    peaks, here, usable = curve.lines
    assert list(peaks.get_xdata())[:3] == [1, 2, 4] and list(here.get_xdata()) == [4]
    assert here.get_ydata()[0] == peaks.get_ydata()[2] == job.fit.account.peak_bytes / GIB
    assert set(usable.get_ydata()) == {22}
    assert all("predicted (CUDA)" in ax.get_title(loc="left") for ax in figure.axes)


@pytest.mark.parametrize("watched", [True, False])
def test_controls_are_shown_to_who_watches_with_a_picture_for_later_readers(watched, monkeypatch):
    shown = []

    def display(item, raw=False, display_id=None):
        shown.append(item)

    parent = {"metadata": {"cellId": "a"} if watched else {}}
    shell = SimpleNamespace(kernel=SimpleNamespace(get_parent=lambda channel: parent))
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    monkeypatch.setattr("IPython.display.display", display)
    planner = show.planner("gpt2", seq=128)
    planner._ipython_display_()
    if watched:
        box, figure, words = shown
        assert box["application/vnd.jupyter.widget-view+json"]["model_id"] == planner.box.model_id
        assert words["text/plain"] == planner.job.text and figure["image/png"]
    else:
        figure, words = shown
        assert len(figure.axes) == 2 and repr(words) == planner.job.text == repr(planner)
        assert f"<code>{planner.job.command}</code>" in words._repr_html_()


BAD = {
    "no such model": dict(model="llama-9"),
    "no ranks": dict(ranks=0),
    "less memory than the reserve": dict(gib_per_gpu=1),
    "batch of zero": dict(batch=0),
    "too long": dict(model="gpt2", seq=2048),
    "a tick that is a word": dict(checkpointing=3.5),
}


@pytest.mark.parametrize("job", BAD.values(), ids=BAD)
def test_a_job_that_cannot_be_is_refused_in_one_sentence(job, is_one_sentence):
    with pytest.raises(UsageError) as caught:
        show.planner(**job)
    assert is_one_sentence(str(caught.value))
    assert PlannedJob(**job).lines() == [str(caught.value)]


def test_only_what_is_chosen_can_change():
    with pytest.raises(UsageError):
        PlannedJob().change("watchers", [])


def test_a_planner_begins_where_it_is_told_though_no_slider_has_that_value():
    controls = show.planner("llama-2-7b", ranks=6, gib_per_gpu=79.1, batch=200, seq=1000).controls
    assert controls.settings["gib_per_gpu"].value == 79.1 and controls.settings["ranks"].value == 6
    assert "79.1 GiB per GPU" in said(controls)
