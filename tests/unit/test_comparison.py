"""Ways side by side: what the table says, what is left out and why, and what a difference is called."""

import json

import pytest

from fsdp2_lab import show
from fsdp2_lab.cli import main
from fsdp2_lab.contract.errors import UsageError
from fsdp2_lab.contract.record import Point, RankRecord, StageRow, StepRow
from fsdp2_lab.contract.units import MIB
from fsdp2_lab.predict.prediction import Prediction
from fsdp2_lab.show import labels
from fsdp2_lab.show.comparison import Column, Comparison, compare_script, explanation, measured_column

TRAINS = "record = open_record(settings)\nsettings = read_settings()\nfor batch in record.steps(batches):\n    pass\n"
DRY = Column("dry run (CPU)", 10 * MIB, 8 * MIB, {"sharded_parameters": 4 * MIB, "reduce_scatter": 6 * MIB})


def comparison(**measured) -> Comparison:
    column = Column("measured (CPU)", measured.pop("peak_bytes", 10 * MIB), 8 * MIB, measured)
    return Comparison("launch/train.py", 2, {"dry run": DRY, "measured": column})


class FakeRun:
    id, how = "train-1", "measured (CPU)"

    def __init__(self, peaks, held=None):
        held = held or [1] * len(peaks)
        self.records = [
            RankRecord(
                **dict(rank=rank, world_size=len(peaks), local_rank=rank, host="", pid=1, device="cpu", how=self.how),
                **dict(started_unix_seconds=0.0, versions={}, argv=[], settings={}),
                stages=[StageRow("train", bytes_after=held[rank])],
                steps=[
                    StepRow(
                        step,
                        peak_bytes=peak and peak + step,
                        timed=False,
                        terms={"other": peak},
                        phases={"forward": 0.0, "backward": 0.5, "optimizer": 0.95},
                        curve=[Point(0.0, 1), Point(0.6, peak or 0), Point(1.0, 1)],
                    )
                    for step in (0, 1)
                ],
            )
            for rank, peak in enumerate(peaks)
        ]


@pytest.fixture
def script(tmp_path, home):
    path = tmp_path / "launch" / "ours.py"
    path.parent.mkdir()
    path.write_text(TRAINS)
    return path


def test_the_table_has_a_row_a_term_a_column_a_way_and_how_far_each_is_off():
    table = comparison(sharded_parameters=4 * MIB, reduce_scatter=6 * MIB, peak_bytes=8 * MIB).table
    assert list(table.columns) == ["dry run (CPU)", "measured (CPU)"]
    assert list(table.index) == [
        labels.TERM_NAMES["sharded_parameters"],
        labels.TERM_NAMES["reduce_scatter"],
        labels.STEP_PEAK,
        labels.FIRST_PEAK,
        labels.AGAINST_MEASURED,
    ]
    assert list(table.loc[labels.AGAINST_MEASURED]) == ["+25.000 %", "+0.000 %"]


def test_an_error_is_a_fraction_of_the_measured_peak():
    assert comparison(peak_bytes=8 * MIB).error("dry run") == 0.25
    with pytest.raises(UsageError, match="'predicted' is not in this comparison"):
        comparison().error("predicted")


def test_a_residual_has_a_name_and_equal_terms_are_said_to_be_equal():
    assert explanation(comparison(**DRY.terms)) == [labels.NO_RESIDUAL.format("0.1%")]
    (line,) = explanation(comparison(**DRY.terms | {"reduce_scatter": 9 * MIB}))
    assert line.startswith("measured +3.00 MiB in reduce-scatter buffers: threads of the process group")


def test_measured_is_the_lowest_rank_that_holds_as_much_as_rank_0():
    found = Comparison("launch/train.py", 3, run=FakeRun([30, 20, 10], held=[7, 7, 6]))
    column = measured_column(found)
    assert (column.peak_bytes, column.step0_peak_bytes) == (21, 20)
    assert "rank 1" in found.notes[0]


def test_a_run_without_metered_steps_is_no_measurement():
    with pytest.raises(UsageError, match="no 2 metered steps"):
        measured_column(Comparison("launch/train.py", 1, run=FakeRun([None])))


def test_a_way_that_cannot_be_taken_is_left_out_with_its_reason(script):
    found = compare_script(script, 1000, ["--batch", "2"], ["predicted", "measured"])
    assert list(found.columns) == ["predicted"]
    assert found.notes[0].startswith("not measured: ranks=1000")
    assert "not measured" in str(found) and "not measured" in found._repr_html_()


def test_where_no_way_can_be_taken_the_reason_is_the_error(script):
    with pytest.raises(UsageError, match="ranks=1000"):
        compare_script(script, 1000, [], ["measured"])


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["{script}", "--ways", "guessed"], "'guessed'"),
        (["{script}", "--ranks", "0"], "ranks=0"),
        (["{script}", "--bacth", "2"], "'--bacth'"),
        (["{script}", "--model", "no-such-model"], "no-such-model"),
        (["{script}", "--figure", "table.txt"], "table.txt"),
        (["no-such-script.py"], "no-such-script.py"),
    ],
)
def test_bad_usage_is_one_sentence(argv, named, script, capsys, is_one_sentence):
    assert main(["compare", *(word.format(script=script) for word in argv)]) == 2
    said = capsys.readouterr()
    assert named in said.err and is_one_sentence(said.err.strip()) and said.out == ""


def test_the_command_prints_json_and_draws_a_figure(script, tmp_path, capsys):
    figure = tmp_path / "ways.png"
    command = ["compare", str(script), "--ranks", "8", "--ways", "predicted", "--json", "--figure", str(figure)]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    predicted = told["columns"]["predicted"]
    assert sum(predicted["terms"].values()) == predicted["peak_bytes"]
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_figures_are_drawn_of_ways_and_of_a_curve():
    (ax,) = show.ways(comparison(**DRY.terms)).axes
    assert sum(bar.get_width() for bar in ax.patches) == 20
    run = FakeRun([5 * MIB])
    (ax,) = show.memory_curve(run).axes
    assert [text.get_text() for text in ax.texts] == ["5.00 MiB", "forward", "backward", "optimizer"]
    with pytest.raises(UsageError, match="no curve of step 7"):
        show.memory_curve(run, step=7)


def test_a_dry_runs_curve_is_drawn_in_the_order_of_its_marks():
    marks = [("forward", 2), ("forward", 3), ("backward", 5), ("optimizer", 4)]
    curve = [{"phase": phase, "mark": "", "module": "", "live_bytes": size * MIB} for phase, size in marks]
    played = Prediction("dry run (CPU)", 2, 10, 5 * MIB, 5 * MIB, "backward", curve=curve, depths_played=[4, 5, 6])
    (ax,) = show.dry_run_curve(played).axes
    assert list(ax.lines[0].get_ydata()) == [2, 3, 5, 4]
    assert "dry run (CPU), 6 layers" in ax.get_title(loc="left")
    with pytest.raises(UsageError, match="no curve"):
        show.dry_run_curve(Prediction("predicted", 2, 10, 5, 5, "backward"))
