"""The command that puts four ways of finding memory side by side agrees with itself, on real ranks."""

import json

WAYS = ["predicted", "dry run", "rehearsed", "measured"]


def test_four_ways_find_the_same_memory(project):
    settings = ["--weights", "random", "--batch", "2", "--seq", "64"]
    process = project.start("-m", "fsdp2_lab", "compare", "launch/train.py", "--ranks", "2", "--json", *settings)
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    told = json.loads(stdout)
    assert list(told["columns"]) == WAYS, told["notes"]
    measured = told["columns"]["measured"]
    for way, tolerance in (("predicted", 0.05), ("dry run", 0.01), ("rehearsed", 0.01)):
        column = told["columns"][way]
        assert sum(column["terms"].values()) == column["peak_bytes"]
        for peak in ("peak_bytes", "step0_peak_bytes"):
            # On a busy machine gloo's thread may still hold a buffer at the peak: measured, a run has up to 9 % more.
            assert -0.1 < column[peak] / measured[peak] - 1 < tolerance, (way, peak)
    assert (project.folder / told["run_dir"]).is_dir()
