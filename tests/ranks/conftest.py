"""Launches shared by many tests, and the tiny models they train."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fsdp2_lab.contract.record import RankRecord, read_records
from fsdp2_lab.lab.runs import Run

SCRIPTS = Path(__file__).parent / "scripts"
_SIZES = {"hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2, "vocab_size": 384}
_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
_TOKENS = {"bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
MODELS = {
    "llama": {"model_type": "llama", "tie_word_embeddings": False},
    "llama-tied": {"model_type": "llama", "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", "head_dim": 16, "tie_word_embeddings": True},
    "mistral": {"model_type": "mistral", "tie_word_embeddings": False},
}
MODELS = {name: _SIZES | _HEADS | _TOKENS | model for name, model in MODELS.items()}
MODELS["gpt2"] = _TOKENS | {
    "model_type": "gpt2",
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 512,
    "vocab_size": 384,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "tie_word_embeddings": True,
}


@dataclass
class Ended:
    """A command that has ended. `told` is the JSON object that `--json` put on stdout."""

    code: int
    stdout: str
    stderr: str

    @property
    def told(self) -> dict:
        return json.loads(self.stdout)

    @property
    def run(self) -> Run:
        return Run(Path(self.told["run_dir"]))


class Project:
    """A project folder whose `launch/` is the checkout's, and which has runs and checkpoints of its own."""

    def __init__(self, folder: Path, launch: Path):
        self.folder = folder
        folder.mkdir()
        (folder / "launch").symlink_to(launch)
        # A rank's threads are set by who starts it; plain torchrun would set one.
        self.environment = os.environ | {"FSDP2_LAB_HOME": str(folder), "COLUMNS": "200"}
        self.environment.pop("FSDP2_LAB_RUN_DIR", None)

    def start(self, *command) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, *map(str, command)],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, script, *argv, ranks: int = 2, timeout: float = 300) -> Ended:
        """`fsdp2-lab run SCRIPT --json`, to its end."""
        command = ["-m", "fsdp2_lab", "run", script, "--ranks", ranks, "--timeout", timeout, "--json", *argv]
        process = self.start(*command)
        stdout, stderr = process.communicate()
        return Ended(process.returncode, stdout, stderr)

    def torchrun(self, script, *argv, ranks: int) -> Ended:
        """Plain torchrun, as a person types it."""
        process = self.start("-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", script, *argv)
        stdout, stderr = process.communicate()
        return Ended(process.returncode, stdout, stderr)

    def run_several(self, script, cases: dict[str, list], ranks: int) -> dict[str, list[RankRecord]]:
        """One launch that runs a script once per case; the records of each case."""
        folders = {name: self.folder / "several" / f"{Path(script).stem}-{ranks}-{name}" for name in cases}
        plan = [[str(folders[name]), list(map(str, argv))] for name, argv in cases.items()]
        file = self.folder / f"{Path(script).stem}-{ranks}.json"
        file.write_text(json.dumps(plan))
        ended = self.run(SCRIPTS / "several.py", script, file, ranks=ranks)
        assert ended.code == 0, ended.stderr
        return {name: read_records(folder) for name, folder in folders.items()}

    @property
    def runs(self) -> list[Path]:
        return sorted((self.folder / "runs").glob("*"))


@pytest.fixture(scope="module")
def project(tmp_path_factory, checkout) -> Project:
    """One project folder per test file."""
    return Project(tmp_path_factory.mktemp("ranks") / "home", checkout / "launch")


@pytest.fixture(scope="session")
def scripts() -> Path:
    """The scripts that tests launch."""
    return SCRIPTS


@pytest.fixture(scope="session")
def model_folders(tmp_path_factory) -> dict[str, Path]:
    """A folder with a config and nothing else, for each tiny model."""
    folders = {}
    for name, config in MODELS.items():
        folders[name] = tmp_path_factory.mktemp("models") / name
        folders[name].mkdir()
        (folders[name] / "config.json").write_text(json.dumps(config))
    return folders


@pytest.fixture(scope="session")
def saved_models(tmp_path_factory, model_folders) -> dict[str, Path]:
    """A safetensors checkpoint of each tiny model, with weights of their own seed."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    folders = {}
    for name, folder in model_folders.items():
        torch.manual_seed(1234)
        folders[name] = tmp_path_factory.mktemp("saved") / name
        AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(folders[name])
    return folders
