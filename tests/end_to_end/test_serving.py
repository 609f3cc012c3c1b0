"""A registered model predicts what its checkpoint predicts, in another process and over HTTP."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ledger.sweeps.records import CheckpointRecord
from orchestrator.tracking import events
from orchestrator.tracking.address import environment
from orchestrator.tracking.mlflow_sink import Destination
from tests.orchestrator.tracking.stored import deliver
from tests.trainables.checkpoints import LISTOPS, saved, settings
from trainables.inference import Predictor

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

MODEL = "models:/rotrnn-listops@champion"
EXPRESSIONS = ["( ( ( [MAX 2 ) 9 ) ] )", "[SM 7 8 [MIN 3 4 ] ]"]
LOADED = """
import json, sys, mlflow
model = mlflow.pyfunc.load_model(sys.argv[1])
import trainables.inference
answers = model.predict(json.loads(sys.argv[2])).to_dict("list")
print(json.dumps({"code": trainables.inference.__file__, "answers": answers}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the model registry and its artifacts."""
    return tmp_path_factory.mktemp("serving")


@pytest.fixture(scope="module")
def predictor(folder: Path) -> Predictor:
    """Return the predictor of a checkpoint that is registered as champion."""
    written, _ = saved(folder, settings("listops", LISTOPS))
    record = CheckpointRecord("s-0", 20, "best", str(written.folder), written.digest, written.bytes, {})
    facts = {"data.digest": "", "data.comparable": False, "metric": "", "direction": "maximize", "value": 0.5}
    destination = Destination(f"sqlite:///{folder}/mlflow.db", str(folder / "artifacts"), "listops", "s", "1")
    deliver(destination, [events.model("s-0", "rotrnn-listops", record, "", facts, 1)])
    return Predictor(written.folder, written.digest)


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment with MLflow and JAX but without this repository, in which pickle is forbidden."""
    variables = {
        **environment(),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "JAX_PLATFORMS": "cpu",
        # MLflow starts its server by the name of its program.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    return {name: value for name, value in variables.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def address(folder: Path, predictor: Predictor) -> Iterator[str]:
    """Serve the champion with MLflow's own command; yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        "models",
        "serve",
        "-m",
        MODEL,
        "--env-manager",
        "local",
        "--host",
        "127.0.0.1",
        "-p",
        str(port),
    ]
    server = subprocess.Popen(
        [sys.executable, "-m", "mlflow", *command],
        env=_environment(folder),
        cwd=folder,
        start_new_session=True,
    )
    try:
        _wait_until_up(server, f"http://127.0.0.1:{port}/ping")
        yield f"http://127.0.0.1:{port}/invocations"
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _wait_until_up(server: subprocess.Popen[bytes], ping: str) -> None:
    deadline = time.monotonic() + 280
    while server.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(ping, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"the server does not answer (exit code {server.poll()})")


def _posted(address: str, document: Any) -> tuple[int, str]:
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    request = urllib.request.Request(address, content, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=240) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_another_process_loads_the_champion(folder: Path, predictor: Predictor) -> None:
    """The process knows the model's name only; the code comes with the model."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, MODEL, json.dumps(EXPRESSIONS)],
        env=_environment(folder),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout.splitlines()[-1])
    assert "/artifacts/" in printed["code"], "the code must be that of the model"
    _assert_same(printed["answers"], predictor)


def test_the_server_predicts_what_the_checkpoint_predicts(address: str, predictor: Predictor) -> None:
    status, text = _posted(address, {"inputs": EXPRESSIONS})
    assert status == 200, text
    rows = json.loads(text)["predictions"]
    _assert_same({name: [row[name] for row in rows] for name in rows[0]}, predictor)
    status, same = _posted(
        address, {"dataframe_split": {"data": [[expression] for expression in EXPRESSIONS]}}
    )
    assert (status, same) == (200, text)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"inputs": ["[MAX 2 ten ]"]}, "must be a ListOps expression (got unknown token 'ten')"),
        ({"inputs": ["[MAX " + "1 " * 50 + "]"]}, "must have at most 39 tokens"),
        ({"expressions": EXPRESSIONS}, "inputs"),
        (b"{", "JSON"),
    ],
)
def test_a_wrong_input_is_refused_with_what_would_be_right(address: str, document: Any, message: str) -> None:
    """The HTTP status is that of a client's error."""
    status, text = _posted(address, document)
    assert 400 <= status < 500, text
    assert message in text
    assert "Traceback" not in json.loads(text).get("message", "")


def _assert_same(answers: dict[str, list[Any]], predictor: Predictor) -> None:
    expected = predictor.predict(EXPRESSIONS)
    assert answers["answer"] == expected["answer"]
    for actual, wanted in zip(answers["probabilities"], expected["probabilities"], strict=True):
        assert actual == pytest.approx(wanted, rel=1e-5)
