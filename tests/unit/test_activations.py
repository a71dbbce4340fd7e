"""What waits for backward over the sequence length, and timed steps: tables and the figure, from fabricated runs."""

import pytest

from fsdp2_lab import show
from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.record import StageRow, StepRow, write_record
from fsdp2_lab.contract.units import MIB
from fsdp2_lab.lab.runs import Run
from fsdp2_lab.predict.trade import trade

LENGTHS = (64, 256)


@pytest.fixture
def ran(tmp_path, rank_record):
    """Makes a run of two ranks whose last stage left a multiple of what the closed form says."""

    def make(
        seq: int, checkpointing: bool, stage: str = "forward", times: float = 1.0, model: str = "byte-llama"
    ) -> Run:
        found = trade("byte-llama", 2, None if checkpointing else 0, batch=4, seq=seq, device="cpu")
        after = 6 * MIB + int(times * found.held_bytes)
        stages = [StageRow("load", bytes_after=6 * MIB), StageRow(stage, bytes_before=6 * MIB, bytes_after=after)]
        settings = {"model": model, "batch": 4, "seq": seq, "checkpointing": checkpointing, "reshard": True}
        settings |= {"param_dtype": "float32", "compute_dtype": "float32"}
        folder = tmp_path / f"{stage}-{seq}-{checkpointing}-{times}-{model}"
        for rank in range(2):
            write_record(folder, rank_record(rank, stages=stages, settings=settings, how="measured (CPU)"))
        return Run(folder)

    return make


@pytest.fixture
def held(ran) -> dict:
    return {
        "off": [ran(seq, False) for seq in LENGTHS],
        "on": [ran(seq, True, times=1.01) for seq in LENGTHS],
        "off, eager": [ran(seq, False, "eager", seq / 32) for seq in LENGTHS],
    }


def test_the_table_says_what_was_measured_and_how_far_it_is_from_the_closed_form(held):
    table = show.held_table(held)
    assert list(table.loc[("off", 64)])[:4] == ["21.18 MiB", "21.18 MiB", "+0.00%", "84.7 KiB"]
    assert table.loc[("on", 256), "measured against it"] == "+1.00%"
    assert list(table.loc[("off, eager", 64)])[1:3] == ["–", "–"]
    assert set(table["how"]) == {"measured (CPU)"}


def test_the_figure_has_points_as_measured_and_lines_as_predicted(held):
    figure = show.held_over_seq(held)
    bytes_axis, token_axis = figure.axes
    for ax in (bytes_axis, token_axis):
        assert len(ax.lines) == 2 * len(held)
    assert "points measured (CPU), lines predicted (CPU)" in bytes_axis.get_title(loc="left")
    points, line = token_axis.lines[:2]
    assert points.get_ydata() == pytest.approx(line.get_ydata(), rel=1e-3)
    eager, joined = token_axis.lines[4:]
    assert eager.get_ydata()[1] == pytest.approx(4 * eager.get_ydata()[0], rel=1e-3)
    assert joined.get_linestyle() == ":"
    assert [text.get_text() for text in figure.legends[0].texts] == list(held)


def test_a_model_without_a_closed_form_is_shown_as_measured(ran):
    runs = {"off": [ran(seq, False, model="/no/such/folder") for seq in LENGTHS]}
    assert set(show.held_table(runs)["predicted"]) == {"–"}
    assert "lines" not in show.held_over_seq(runs).axes[0].get_title(loc="left")


def test_a_stage_that_was_not_metered_is_refused(tmp_path, rank_record, is_one_sentence):
    write_record(tmp_path / "run", rank_record(0, stages=[StageRow("forward")]))
    with pytest.raises(UsageError) as caught:
        show.held_bytes(Run(tmp_path / "run"))
    assert is_one_sentence(str(caught.value))


def test_step_times_are_those_of_the_slowest_rank_without_metered_steps(tmp_path, rank_record, is_one_sentence):
    for rank, slower in ((0, 0.0), (1, 0.5)):
        steps = [StepRow(step, "train", seconds=step + slower, timed=step > 1) for step in range(5)]
        write_record(tmp_path / "run", rank_record(rank, steps=steps, how="measured (CPU)"))
    run = Run(tmp_path / "run")
    assert list(show.step_times({"on": run}).loc["on"]) == [3, "2.50 s", "3.50 s", "4.50 s", "measured (CPU)"]
    write_record(tmp_path / "short", rank_record(0, steps=[StepRow(0, "train", seconds=1.0, timed=False)]))
    with pytest.raises(UsageError) as caught:
        show.step_times({"short": Run(tmp_path / "short")})
    assert is_one_sentence(str(caught.value))
