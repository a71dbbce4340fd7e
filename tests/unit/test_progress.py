"""Progress: what rank 0 has recorded so far, as plain lines, in a terminal, and in a notebook."""

import io
import re
import signal
import sys
import threading
from types import SimpleNamespace

import pytest

from fsdp2_lab.contract.record import StageRow, StepRow, rank_file, write_launch, write_record
from fsdp2_lab.lab.live import notebook_display, progress, standing, stop_button, terminal
from fsdp2_lab.lab.live.notebook_display import Display
from fsdp2_lab.lab.live.progress import Lines, make_progress
from fsdp2_lab.lab.live.stop_button import WIDGET_VIEW, StopButton
from fsdp2_lab.lab.live.terminal import Terminal
from fsdp2_lab.lab.runs import Run

STEPS = [StepRow(0, "train", loss=6.0, tokens=512, seconds=2.0), StepRow(1, "train", loss=5.0, tokens=512, seconds=2.0)]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(standing, "_READ_SHARE", 1e9)
    monkeypatch.setattr(notebook_display, "_REFRESH_SECONDS", 0.0)
    monkeypatch.setattr(notebook_display, "_UNATTENDED_SECONDS", 0.0)


@pytest.fixture
def write_running(tmp_path, rank_record):
    """Writes the record of a rank that has reached some stages, and made some of four steps in the last."""

    def write(*names: str, steps=()):
        stages = [StageRow(name) for name in names]
        write_record(tmp_path, rank_record(0, status="running", stages=stages, steps=list(steps)))

    return write


@pytest.fixture
def ended(home, launch_record, rank_record) -> Run:
    """A run that went well, and whose rank 0 printed a word."""
    run_dir = home / "runs" / "train-1"
    write_launch(run_dir, launch_record(ranks=1))
    write_record(run_dir, rank_record(0, world_size=1))
    (run_dir / "logs").mkdir()
    (run_dir / "logs" / "rank0.stdout").write_text("hello <b>\n")
    return Run(run_dir)


class TestLines:
    @pytest.fixture
    def lines(self, tmp_path, launch_record, capsys) -> Lines:
        lines = Lines()
        lines.start(launch_record(), tmp_path)
        return lines

    def test_the_command_is_said_before_anything_else(self, lines, capsys):
        said = capsys.readouterr()
        assert said.err.startswith("torchrun --standalone --nproc_per_node=2 launch/train.py --steps 4 · 2 ranks")
        assert said.out == ""

    @pytest.mark.parametrize(("threads", "said"), [(1, "2 ranks × 1 thread, "), (4, "2 ranks × 4 threads, ")])
    def test_threads_per_rank_are_said_where_they_are_known(self, threads, said, tmp_path, launch_record, capsys):
        Lines().start(launch_record(threads_per_rank=threads), tmp_path)
        assert said in capsys.readouterr().err

    def test_a_cold_start_says_why_unless_it_was_asked_for(self, tmp_path, launch_record, capsys):
        launch = launch_record(cold_because="warm=False")
        lines = Lines()
        lines.start(launch, tmp_path)
        lines.update()
        assert "cold" not in capsys.readouterr().err
        launch.cold_because = "forking is not safe"
        lines.update()
        lines.update()
        assert capsys.readouterr().err == "  starting Python on every rank; cold, since forking is not safe\n"

    def test_a_secret_of_the_command_line_is_not_said(self, tmp_path, launch_record, capsys):
        Lines().start(launch_record(command="torchrun own.py --api-key abcdefgh12345"), tmp_path)
        assert "abcdefgh12345" not in capsys.readouterr().err

    def test_each_stage_is_said_once_also_where_several_passed_unseen(self, lines, write_running, capsys):
        capsys.readouterr()
        lines.update()
        write_running("mesh")
        lines.update()
        lines.update()
        write_running("mesh", "meta", "shard", "load")
        lines.update()
        assert capsys.readouterr().err.splitlines() == ["  stage mesh", "  stage meta", "  stage shard", "  stage load"]

    def test_a_record_that_cannot_be_read_does_not_stop_a_launch(self, lines, tmp_path, capsys):
        capsys.readouterr()
        rank_file(tmp_path, 0).write_text("{")
        lines.update()
        assert capsys.readouterr().err == ""

    def test_a_step_is_said_once_in_a_while(self, lines, write_running, capsys, monkeypatch):
        write_running("train", steps=STEPS)
        lines.update()
        capsys.readouterr()
        lines.update()
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
        lines.update()
        said = capsys.readouterr().err
        assert said == "  stage train, step 2 of 4, loss 5.0000, 256 tokens/s, 4 s left\n"

    def test_the_end_is_told_in_the_words_of_the_run(self, lines, ended, capsys):
        capsys.readouterr()
        lines.finish(ended)
        assert capsys.readouterr().err.strip() == ended.summary

    def test_a_record_that_is_broken_at_the_end_does_not_hide_how_the_launch_ended(self, lines, ended, capsys):
        rank_file(ended.dir, 0).write_text("{")
        lines.finish(Run(ended.dir))
        assert "is not a whole record" in capsys.readouterr().err

    def test_a_closed_stderr_does_not_stop_a_launch(self, lines, write_running, ended, monkeypatch):
        stream = io.StringIO()
        stream.close()
        monkeypatch.setattr("sys.stderr", stream)
        write_running("train", steps=STEPS)
        lines.update()
        lines.finish(ended)


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestTerminal:
    @pytest.fixture
    def screen(self, monkeypatch) -> FakeTerminal:
        screen = FakeTerminal()
        # Not sys.stderr itself: pytest sets that anew between a fixture and its test.
        for module in (progress, terminal):
            monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=screen, modules=sys.modules))
        for name in ("CI", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", "120")
        return screen

    def test_stages_numbers_and_a_bar_are_shown_and_the_summary_stays(
        self, screen, tmp_path, launch_record, write_running, ended
    ):
        live = Terminal()
        live.start(launch_record(), tmp_path)
        assert "starting Python on every rank" in screen.getvalue()
        write_running("mesh", "train", steps=STEPS)
        live.update()
        drawn = screen.getvalue()
        assert "✓ mesh" in drawn and "▸ train" in drawn and "━" in drawn
        assert "step 2 of 4 · loss 5.0000 · 256 tokens/s · 4 s left" in drawn
        live.finish(ended)
        assert screen.getvalue().endswith(f"{ended.summary}\n")
        assert screen.getvalue().count("\x1b[?25l") == screen.getvalue().count("\x1b[?25h") == 1  # the cursor is back

    def test_a_narrow_terminal_gets_no_line_that_wraps(
        self, screen, tmp_path, launch_record, write_running, monkeypatch
    ):
        monkeypatch.setenv("COLUMNS", "40")
        live = Terminal()
        live.start(launch_record(), tmp_path)
        before = len(screen.getvalue())
        write_running("mesh", "meta", "shard", "load", "checkpointing", "train", steps=STEPS)
        live.update()
        lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue()[before:]).replace("\r", "").split("\n")
        assert 30 < max(map(len, lines)) <= 40
        assert "✓ 5 stages  ▸ train" in lines[-3] and lines[-1].startswith("step 2 of 4")

    def test_no_color_is_respected(self, screen, tmp_path, launch_record, write_running, monkeypatch):
        monkeypatch.setenv("NO_COLOR", "1")
        live = Terminal()
        live.start(launch_record(), tmp_path)
        write_running("mesh", "train", steps=STEPS)
        live.update()
        assert "✓ mesh" in screen.getvalue()
        assert "\x1b[32m" not in screen.getvalue() and "\x1b[38" not in screen.getvalue()

    @pytest.mark.parametrize(("name", "value"), [("TERM", "dumb"), ("CI", "true")])
    def test_a_terminal_that_is_a_log_gets_lines(self, screen, name, value, monkeypatch):
        assert type(make_progress()) is Terminal
        monkeypatch.setenv(name, value)
        assert type(make_progress()) is Lines

    def test_a_file_gets_lines_also_where_colour_is_forced(self, screen, monkeypatch):
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setattr(progress.sys, "stderr", io.StringIO())
        assert type(make_progress()) is Lines


class FakeKernel:
    """A kernel with or without subshells, called by a frontend that says which cell it runs, or by none."""

    def __init__(self, cell: bool, subshells: list | None):
        self._metadata = {"cellId": "a"} if cell else {}
        manager = SimpleNamespace(list_subshell=lambda: subshells)
        self.shell_channel_thread = None if subshells is None else SimpleNamespace(manager=manager)

    def get_parent(self, _channel) -> dict:
        return {"metadata": self._metadata}


class TestDisplay:
    @pytest.fixture
    def shown(self, monkeypatch) -> list:
        """The bundles that a notebook was given, in order; the kernel is an old one with a person in front."""
        shown = []

        def show(thing, **_options):
            shown.append(thing._repr_mimebundle_())
            return SimpleNamespace(update=show)

        self.kernel = FakeKernel(cell=True, subshells=None)
        monkeypatch.setattr("IPython.display.display", show)
        monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=self.kernel))
        return shown

    def test_it_is_replaced_as_the_run_goes_on_and_escaped(self, shown, tmp_path, launch_record, write_running):
        display = Display()
        display.start(launch_record(command="torchrun <own>.py"), tmp_path)
        display.update()
        write_running("mesh", "train", steps=STEPS)
        display.update()
        assert "torchrun &lt;own&gt;.py" in shown[0]["text/html"]
        assert "starting Python on every rank" in shown[1]["text/plain"]
        assert "✓ mesh  ▸ train" in shown[2]["text/plain"]
        assert "step 2 of 4 · loss 5.0000 · 256 tokens/s · 4 s left" in shown[2]["text/html"]
        assert '<progress max="1" value="0.500"' in shown[2]["text/html"]
        assert all("stop: interrupt the kernel" in bundle["text/plain"] for bundle in shown)
        assert not any(WIDGET_VIEW in bundle for bundle in shown)

    def test_it_ends_as_static_html(self, shown, tmp_path, launch_record, ended):
        display = Display()
        display.start(launch_record(), tmp_path)
        display.finish(ended)
        assert set(shown[-1]) == {"text/plain", "text/html"}
        assert "<pre>hello &lt;b&gt;</pre>" in shown[-1]["text/html"]
        assert "<progress" not in shown[-1]["text/html"] and "interrupt" not in shown[-1]["text/plain"]

    def test_it_is_updated_a_few_times_a_second_and_less_where_nobody_looks(
        self, shown, tmp_path, launch_record, monkeypatch
    ):
        monkeypatch.undo()
        assert notebook_display._REFRESH_SECONDS >= 1 / 3
        assert notebook_display._UNATTENDED_SECONDS >= 1.0

    def test_a_button_is_shown_once_an_answer_came_and_gone_at_the_end(self, shown, tmp_path, launch_record, ended):
        pytest.importorskip("ipywidgets")
        self.kernel = FakeKernel(cell=True, subshells=["1"])
        display = Display()
        display.start(launch_record(), tmp_path)
        for _ in range(5):
            display.update()
        assert not any(WIDGET_VIEW in bundle for bundle in shown)
        answer(display._stop)
        display.update()
        assert WIDGET_VIEW in shown[-1] and len(shown) == 7
        display.update()  # into the widget, no longer through the display
        assert len(shown) == 7 and "interrupt" not in display._stop._html.value
        display.finish(ended)
        assert set(shown[-1]) == {"text/plain", "text/html"}


def answer(button: StopButton) -> None:
    """What the frontend does: it copies the placeholder of the HTML onto the button's tooltip."""
    button._button.tooltip = button._html.placeholder


class TestStopButton:
    @pytest.fixture
    def signals(self, monkeypatch) -> list:
        pytest.importorskip("ipywidgets")
        sent = []
        monkeypatch.setattr(stop_button.signal, "pthread_kill", lambda thread, number: sent.append((thread, number)))
        return sent

    def test_a_press_interrupts_the_main_thread(self, signals):
        button = StopButton(FakeKernel(cell=True, subshells=["1"]))
        press = threading.Thread(target=button._button.click)
        press.start()
        press.join()
        assert signals == [(threading.main_thread().ident, signal.SIGINT)]
        assert button._button.disabled

    def test_a_press_that_comes_late_does_nothing(self, signals):
        button = StopButton(FakeKernel(cell=True, subshells=["1"]))
        inner = button._button
        button.close()
        button._press(inner)
        assert signals == []

    def test_it_works_only_once_the_frontend_answered_through_a_subshell(self, signals):
        subshells = []
        button = StopButton(FakeKernel(cell=True, subshells=subshells))
        for _ in range(5):
            assert not button.works()
            answer(button)  # there is nothing to copy yet
        subshells.append("1")
        asked = [button.works() for _ in range(stop_button._SIGHTINGS)]
        assert not any(asked)
        answer(button)
        assert button.works()

    @pytest.mark.parametrize("kernel", [FakeKernel(True, None), FakeKernel(False, ["1"])], ids=["old", "papermill"])
    def test_no_widget_is_made_where_none_can_work(self, signals, kernel):
        button = StopButton(kernel)
        assert not button.expected and not button.works()
        button.close()

    def test_no_widget_is_made_outside_the_main_thread(self, signals):
        made = []
        thread = threading.Thread(target=lambda: made.append(StopButton(FakeKernel(True, ["1"]))))
        thread.start()
        thread.join()
        assert not made[0].expected

    def test_no_widget_is_made_without_ipywidgets(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "ipywidgets", None)
        assert not StopButton(FakeKernel(True, ["1"])).expected


@pytest.mark.parametrize("kind", [Display, Terminal])
def test_an_end_before_the_start_is_no_error(kind, ended):
    kind().finish(ended)


def test_without_a_notebook_or_a_terminal_progress_is_plain_lines():
    assert type(make_progress()) is Lines
