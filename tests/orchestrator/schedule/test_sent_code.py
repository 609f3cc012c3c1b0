"""The folder of a trainable reaches the workers of a cluster through Ray, and only what they need of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.config.trainable import Trainable
from orchestrator.schedule import sent_code
from tests.shared_ray import own_ray

DRIVER = """
import json, os, shutil, sys
from dataclasses import replace
from pathlib import Path
from orchestrator.machines.hardware import Hardware
from orchestrator.machines.joining import joined
from orchestrator.schedule import environment
environment.prepare(Path(sys.argv[1]) / "token")
import ray
from orchestrator.schedule import cluster, sent_code
from orchestrator.scripts.attempt import OwnProcess
from tests.attempts import assignment
from trainables.trial import Clock, ScriptSettings

code, place = Path(sys.argv[2]), Path(sys.argv[3])

def look(folder):
    import queue
    found = Path(sent_code.found(folder, ("python", "train.py")))
    return str(found), queue.__file__

def files(folder):
    found = Path(sent_code.found(folder, "train.py:train"))
    return str(found), sorted(str(path.relative_to(found)) for path in found.rglob("*") if path.is_file())

def trained(assigned):
    own = OwnProcess()
    try:
        return own.advance(sent_code.on_this_machine(assigned))
    finally:
        own.release()

hardware, seen = Hardware(cpus=2, gpus=0), {}
with joined(hardware, environment.of_head()) as head:
    os.environ["RAY_ADDRESS"] = head.address
    with cluster.connected(hardware, code):
        run = lambda work, *given: ray.get(ray.remote(num_cpus=1)(work).remote(*given))
        seen["same code"], seen["queue"] = run(look, str(code))
        settings = ScriptSettings(
            function="train.py:train", command=None, shell=False, folder=str(code), params={"rate": 2.0},
            training=Clock(4, 2), seed=1,
        )
        assigned = replace(
            assignment(place, 0), settings=settings, gpu=0.0, checkpoints=str(place / "kept"),
            log=str(place / "trial.log"),
        )
        shutil.rmtree(code)
        seen["gone"], seen["files"] = run(files, str(code))
        outcome = run(trained, assigned)
        seen["outcome"] = outcome.message or outcome.metrics["val/loss"]
print(json.dumps(seen))
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """Return a folder of code, with files that no trial needs and one that could hide a module."""
    folder = tmp_path / "digits"
    for below in (".git", ".venv", "env/lib", "mlruns", "data"):
        (folder / below).mkdir(parents=True)
        (folder / below / "file").write_text("text")
    (folder / "env" / "pyvenv.cfg").write_text("home = /usr/bin")
    (folder / "queue.py").write_text("raise RuntimeError('not the one of Python')")
    (folder / "helper.py").write_text("def loss(rate): return 3 * rate")
    (folder / "train.py").write_text(
        "from helper import loss\n"
        "def train(trial):\n    trial.report(trial.steps, {'val/loss': loss(trial.params['rate'])})\n"
    )
    return folder


@pytest.mark.ray
@pytest.mark.slow
def test_a_folder_reaches_workers_that_do_not_have_it(code: Path, temporary: Path, tmp_path: Path) -> None:
    inherited = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with own_ray(temporary) as variables:
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, str(temporary), str(code), str(tmp_path)],
            env={**inherited, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["same code"] == str(code), "a shared disk is used as it is"
    assert "digits" not in seen["queue"]
    assert Path(seen["gone"]).name == "digits"
    assert seen["gone"] != str(code)
    assert seen["files"] == ["data/file", "helper.py", "queue.py", "train.py"]
    assert seen["outcome"] == 6


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        ("train.py:train", True),
        ("helper:loss", True),
        ("json.decoder:JSONDecoder", False),
        (("./run",), True),
    ],
)
def test_installed_code_is_not_sent(code: Path, target: str | tuple[str, ...], sent: bool) -> None:
    trainable = Trainable("command" if isinstance(target, tuple) else "function", target, str(code))
    assert sent_code.folder_to_send(trainable) == (code if sent else None)
    assert sent_code.folder_to_send(None) is None


def test_what_is_left_out_does_not_count(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code / ".git" / "file").write_bytes(bytes(1 << 20))
    assert 0 < sent_code.size_of(code) < 1 << 20
    (code / "data" / "file").write_bytes(bytes(1 << 20))
    assert sent_code.size_of(code) > 1 << 20
