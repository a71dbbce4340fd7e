"""What a launch leaves in a notebook: short, escaped, rank 0's words first."""

import pytest

from fsdp2_lab.contract.record import write_launch, write_record
from fsdp2_lab.lab.live.kept_output import kept_output
from fsdp2_lab.lab.runs import Run


@pytest.fixture
def run(home, launch_record, rank_record):
    """Makes a run of which each rank printed what is given: stdout, stderr."""

    def make(*printed: tuple[str, str], **changes) -> Run:
        run_dir = home / "runs" / "train-1"
        write_launch(run_dir, launch_record(ranks=len(printed), **changes))
        (run_dir / "logs").mkdir()
        for rank, streams in enumerate(printed):
            write_record(run_dir, rank_record(rank, world_size=len(printed)))
            for stream, text in zip(("stdout", "stderr"), streams, strict=True):
                (run_dir / "logs" / f"rank{rank}.{stream}").write_text(text)
        return Run(run_dir)

    return make


def test_ranks_that_print_nothing_leave_two_lines(run):
    html, plain = kept_output(run(("", ""), ("", "")))
    assert plain.splitlines() == [
        "train-1 · ok · 2 ranks · measured (CPU) · 25.00 s · "
        "torchrun --standalone --nproc_per_node=2 launch/train.py --steps 4",
        "mesh 0.50 s · train 20.00 s",
    ]
    assert "<details" not in html and len(html) < 300


def test_rank_0s_output_is_open_and_the_others_are_a_click_away(run):
    html, plain = kept_output(run(("hello\n", ""), ("other\n", ""), ("other\n", "")))
    assert html.count("<details open>") == 1 and html.count("<details>") == 1
    assert html.index("<pre>hello</pre>") < html.index("ranks 1, 2 · 1 line on stdout")
    assert plain.endswith("rank 0: hello") and "other" not in plain


def test_a_librarys_words_on_stderr_stay_folded(run):
    html, _ = kept_output(run(("hello\n", "warning\n"), ("", "")))
    assert "<details><summary><small>stderr</small></summary><pre>warning</pre></details>" in html


def test_a_rank_that_prints_html_shows_text(run):
    evil = "<script>alert(1)</script></pre><img src=x onerror=alert(1)>&amp;\n"
    html, _ = kept_output(run((evil, evil), command="torchrun <b>.py"))
    assert "<script" not in html and "<img" not in html and "<b>" not in html
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 2 and "&amp;amp;" in html


def test_many_ranks_do_not_fill_the_notebook(run):
    html, _ = kept_output(run(*[(f"rank {rank}\n", "") for rank in range(20)]))
    assert html.count("<details") == 8
    assert "12 more: runs/train-1/logs" in html


def test_a_run_whose_logs_are_gone_still_has_its_outcome(run):
    made = run(("x\n", ""))
    for log in (made.dir / "logs").iterdir():
        log.unlink()
    assert "<details" not in kept_output(made)[0]


def test_a_record_that_cannot_be_read_is_said_in_a_line(run):
    made = run(("x\n", ""))
    (made.dir / "rank0.json").write_text("{")
    html, plain = kept_output(Run(made.dir))
    assert "is not a whole record" in plain and str(made.dir) not in plain + html
