"""Files to begin with, written without a checkout."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
from ray.autoscaler._private.util import prepare_config, validate_config
from ruamel.yaml import YAML

from orchestrator import Sweep
from orchestrator.api import templates
from orchestrator.cli.app import run_command
from orchestrator.config.resolve import check_name
from orchestrator.errors import BadInput
from trainables.tasks import TASKS


def test_every_task_has_a_search_space() -> None:
    assert set(TASKS) <= set(templates.tasks())


def test_a_search_space_is_valid_and_refers_to_its_schema(tmp_path: Path) -> None:
    file, schema = templates.write_search_space("listops", tmp_path / "new")
    assert file == tmp_path / "new" / "listops.yaml"
    assert file.read_text().startswith(f"# yaml-language-server: $schema={schema.name}\n")
    assert "listops" in json.loads(schema.read_text())["properties"]["task"]["enum"]
    assert Sweep.load(file, profile="laptop", root=tmp_path / "mlruns").specification.task == "listops"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    templates.write_search_space("copy", tmp_path)
    (tmp_path / "copy.yaml").write_text("mine")
    with pytest.raises(BadInput, match="already exists"):
        templates.write_search_space("copy", tmp_path)
    assert (tmp_path / "copy.yaml").read_text() == "mine"
    templates.write_search_space("adding", tmp_path)
    templates.write_cluster("slurm", tmp_path)
    with pytest.raises(BadInput, match="already exists"):
        templates.write_cluster("slurm", tmp_path)


def test_a_misspelt_name_is_corrected(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Did you mean `listops`"):
        templates.write_search_space("listop", tmp_path)
    with pytest.raises(BadInput, match="aws, gcp, own-machines"):
        templates.write_cluster("azure", tmp_path)
    with pytest.raises(BadInput):
        templates.write_search_space("../cluster/aws", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", sorted(templates.CLUSTERS))
def test_the_files_of_a_cluster_are_complete(kind: str, tmp_path: Path) -> None:
    """Every file that another one runs on a node is written with it."""
    written = templates.write_cluster(kind, tmp_path)
    names = {file.name for file in written}
    for file in written:
        others = {
            word.rpartition("/")[2].strip("'\"")
            for word in file.read_text().split()
            if "sweeps/cluster/" in word
        }
        assert others <= names, file
        assert file.suffix != ".sh" or os.access(file, os.X_OK)
    if kind in {"aws", "gcp", "own-machines"}:
        validate_config(prepare_config(YAML(typ="safe").load(written[0])))


def test_a_node_without_a_checkout_needs_the_wheel(tmp_path: Path) -> None:
    templates.write_cluster("own-machines", tmp_path)
    setup = ["sh", str(tmp_path / "cluster" / "setup.sh")]
    missing = subprocess.run(setup, capture_output=True, text=True, check=False)
    assert (missing.returncode, "must hold a checkout or the project's wheel" in missing.stderr) == (2, True)
    wrong = subprocess.run([*setup, "GPU=1"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, "not GPU=1" in wrong.stderr) == (2, True)


@pytest.mark.parametrize(
    ("settings", "requirement"),
    [
        ([], "sweeps.whl[postgres,s3]"),
        (["JOBS=1"], "sweeps.whl[postgres,s3,jobs]"),
        (["CUDA=13"], "sweeps.whl[postgres,s3,cuda13]"),
        (["CUDA=13", "JOBS=1"], "sweeps.whl[postgres,s3,cuda13,jobs]"),
    ],
)
def test_a_node_installs_the_wheel_beside_the_cluster_files(
    settings: list[str], requirement: str, tmp_path: Path
) -> None:
    templates.write_cluster("own-machines", tmp_path)
    (tmp_path / "sweeps.whl").touch()
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    setup = ["sh", str(tmp_path / "cluster" / "setup.sh"), *settings]
    done = subprocess.run(setup, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == requirement


@pytest.mark.parametrize(
    ("script", "file"),
    [("my train.py", "my-train"), ("train.v2.py", "train-v2"), ("größe.py", "gr-e"), ("é.py", "sweep")],
)
def test_the_draft_of_a_script_names_a_sweep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], script: str, file: str
) -> None:
    """Whatever the script is called, and wherever it lies, the printed command accepts the file."""
    folder = tmp_path / "my code"
    folder.mkdir()
    text = "import argparse\nparser = argparse.ArgumentParser()\n"
    text += 'parser.add_argument("--lr", type=float, default=0.1)'
    (folder / script).write_text(text)
    assert run_command(["init", "--script", str(folder / script)]) == 0
    *_, line = capsys.readouterr().out.splitlines()
    assert shlex.split(line) == ["sweep", "validate", str(folder / f"{file}.yaml")]
    check_name(file, "init", "the name", "")


def test_the_verb_says_what_it_has_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["init"]) == 0
    assert "listops, " in capsys.readouterr().out
    assert run_command(["init", "copy", str(tmp_path)]) == 0
    assert f"sweep {tmp_path / 'copy.yaml'}" in capsys.readouterr().out
    assert run_command(["init", "--cluster", "aws", str(tmp_path)]) == 0
    assert f"top of {tmp_path / 'cluster' / 'aws.yaml'}" in capsys.readouterr().out
    assert run_command(["init", "--cluster", "aws", "copy", str(tmp_path)]) == 2
