"""The command line: what it says where, and its exit codes."""

import json
import subprocess
import sys

import pytest

from fsdp2_lab.cli import main
from fsdp2_lab.contract.record import write_launch, write_record

BAD_USAGE = {
    "a missing script": ["run", "none.py"],
    "no ranks": ["run", "{script}", "--ranks", "0"],
    "far too many ranks": ["run", "{script}", "--ranks", "100000"],
    "no time": ["run", "{script}", "--timeout", "0"],
    "endless time": ["run", "{script}", "--timeout", "inf"],
    "GPUs on a machine without": ["run", "{script}", "--gpus", "0,1"],
    "GPUs that are no numbers": ["run", "{script}", "--gpus", "all"],
    "less than no wait": ["run", "{script}", "--wait", "-1"],
    "a bad setting": ["run", "{script}", "--batch", "0"],
    "an unknown setting": ["run", "{script}", "--layers", "3"],
    "a run that is not there": ["runs", "train-1"],
    "a run id that is a path": ["runs", "../etc"],
    "no notebooks": ["notebooks"],
}


@pytest.mark.parametrize("argv", BAD_USAGE.values(), ids=BAD_USAGE)
def test_bad_usage_is_exit_code_2_and_one_sentence_on_stderr(argv, home, tmp_path, capsys, is_one_sentence):
    script = tmp_path / "ours.py"
    script.write_text("from fsdp2_lab.rank import read_settings\nsettings = read_settings()\n")
    assert main([word.format(script=script) for word in argv]) == 2
    said = capsys.readouterr()
    assert is_one_sentence(said.err.strip()) and said.out == ""


@pytest.mark.parametrize(
    "argv", [[], ["walk"], ["runs", "--all"], ["doctor", "now"], ["run"], ["run", "x.py", "--ranks", "two"]]
)
def test_a_command_that_cannot_be_parsed_is_exit_code_2(argv, capsys):
    with pytest.raises(SystemExit) as left:
        main(argv)
    assert left.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_an_empty_project_has_no_runs(home, capsys):
    assert main(["runs"]) == 0
    assert capsys.readouterr().out == "no runs yet\n"
    assert main(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_runs_are_listed_and_shown(home, launch_record, rank_record, capsys):
    write_launch(home / "runs" / "train-1", launch_record())
    write_record(home / "runs" / "train-1", rank_record())
    assert main(["runs"]) == 0
    assert "train-1" in capsys.readouterr().out
    assert main(["runs", "--json"]) == 0
    assert [run["id"] for run in json.loads(capsys.readouterr().out)] == ["train-1"]
    assert main(["runs", "train-1"]) == 0
    assert "loss 6.0000 → 3.0000" in capsys.readouterr().out
    assert main(["runs", "train-1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "ok"


def test_doctor_says_what_there_is_as_text_and_as_json(capsys):
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    assert (report["backend"], report["gpus"], report["how"]) == ("gloo", 0, "measured (CPU)")
    checks = {check["name"]: check for check in report["checks"]}
    assert {"python", "torch", "transformers", "devices", "cores", "memory"} <= set(checks)
    assert checks["python"]["found"] == ".".join(map(str, sys.version_info[:3]))
    assert ">=2.11" in checks["torch"]["expected"]
    assert main(["doctor"]) == 0
    assert "Notebooks and scripts will use: 2 ranks" in capsys.readouterr().out


def test_doctor_finds_a_version_out_of_range(capsys, monkeypatch):
    from fsdp2_lab.lab import doctor

    monkeypatch.setattr(doctor, "version", lambda name: "1.0" if name == "torch" else "99.0")
    assert main(["doctor", "--json"]) == 1
    checks = {check["name"]: check["ok"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert not checks["torch"] and checks["transformers"]


def test_the_module_is_the_command(home):
    done = subprocess.run([sys.executable, "-m", "fsdp2_lab", "runs"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "no runs yet\n")


def test_the_installed_command_is_the_same(home):
    from importlib.metadata import entry_points

    (command,) = entry_points(group="console_scripts", name="fsdp2-lab")
    assert command.load() is main
