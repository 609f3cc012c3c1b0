"""The service under systemd, Kubernetes and Slurm, as far as it can be tested without them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml  # YAML 1.1, as Kubernetes reads it: 0400 is octal
from typer.testing import CliRunner

from orchestrator.cli.app import VERBS, build
from orchestrator.errors import Exit
from orchestrator.service.discovery import running

FOLDER = Path(__file__).parents[2] / "cluster"
UNIT = FOLDER / "sweep-serve.service"
KUSTOMIZE = ["kubectl", "kustomize", "--load-restrictor", "LoadRestrictionsNone"]
WAIT_SECONDS = 60.0


def verified(unit: Path, folder: Path) -> str:
    """Return what systemd has to say about a unit whose home folder is `folder`."""
    program = folder / "sweeps" / ".venv" / "bin" / "python"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.unlink(missing_ok=True)
    program.symlink_to(sys.executable)
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--user", unit],
        env={**os.environ, "XDG_RUNTIME_DIR": str(folder), "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    return checked.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian: systemd)")
def test_systemd_accepts_its_unit(tmp_path: Path) -> None:
    assert "sweep-serve.service" not in verified(UNIT, tmp_path)
    misspelt = tmp_path / UNIT.name
    misspelt.write_text(UNIT.read_text().replace("KillMode=", "KilMode="))
    assert "KilMode" in verified(misspelt, tmp_path)


def test_systemd_leaves_the_drivers_alone_and_restarts_the_service() -> None:
    lines = UNIT.read_text().splitlines()
    assert {"KillMode=process", "Restart=always", "OOMPolicy=continue", "StartLimitIntervalSec=0"} <= set(
        lines
    )


def renders() -> bool:
    """Return True if there is a kubectl that can render the objects: that of Debian 12, 1.20, cannot."""
    if shutil.which("kubectl") is None:
        return False
    helped = subprocess.run(["kubectl", "kustomize", "--help"], capture_output=True, text=True, check=False)
    return "--load-restrictor" in helped.stdout


@pytest.mark.skipif(not renders(), reason="needs a kubectl that has `kustomize --load-restrictor`")
def test_on_kubernetes_the_service_takes_the_place_of_one_sweep() -> None:
    made = subprocess.run(
        [*KUSTOMIZE, FOLDER / "serve-kubernetes"], capture_output=True, text=True, check=True
    ).stdout
    served = {document["kind"]: document for document in yaml.safe_load_all(made)}
    plain = {
        document["kind"]: document for document in yaml.safe_load_all((FOLDER / "kuberay.yaml").read_text())
    }
    own = {"entrypoint": "python -m orchestrator.sweep serve --stop-drivers", "backoffLimit": 1000}
    plain["RayJob"]["spec"] |= own
    assert served == plain


@pytest.mark.parametrize("name", ["sweep-serve.service", "serve-kubernetes/kustomization.yaml", "slurm.sh"])
def test_the_command_of_each_file_exists(name: str) -> None:
    text = (FOLDER / name).read_text()
    commands = re.findall(r"(?:orchestrator\.sweep|slurm\.sh) (serve(?: --[a-z-]+)*)", text)
    assert commands
    for command in commands:
        result = CliRunner().invoke(build(VERBS), [*shlex.split(command), "--help"])
        assert result.exit_code == 0


@pytest.mark.slow
@pytest.mark.end_to_end
def test_a_job_of_slurm_that_reaches_its_limit_is_requeued_with_its_service(tmp_path: Path) -> None:
    """The commands of Slurm and Ray are replaced; script and service are real."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    replaced = {
        "python": f'exec "{sys.executable}" "$@"',
        "ray": "exit 0",
        "srun": "[[ $* == *hostname* ]] && echo 127.0.0.1; exit 0",
        "scontrol": f'[[ $1 == requeue ]] && echo "$2" >{tmp_path}/requeued; echo host-1',
    }
    for name, text in replaced.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n")
        (programs / name).chmod(0o755)
    script = tmp_path / "slurm.sh"
    text = (FOLDER / "slurm.sh").read_text()
    script.write_text(re.sub(r"^export \w+=.*FILL-IN.*\n", "", text, flags=re.M))
    variables = {"SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_ID": "4711", "SLURM_JOB_NUM_NODES": "1"}
    variables |= {"SLURM_JOB_NODELIST": "host-1", "PYTHONPATH": str(FOLDER.parent)}
    environment = {**os.environ, **variables}
    job = subprocess.Popen(["bash", script, "serve", "--stop-drivers"], env=environment, cwd=tmp_path)
    deadline = time.monotonic() + WAIT_SECONDS
    while running(tmp_path / "mlruns" / "serve.json") is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    job.send_signal(signal.SIGTERM)
    assert job.wait(WAIT_SECONDS) == Exit.RESUMABLE
    assert (tmp_path / "requeued").read_text() == "4711\n"
