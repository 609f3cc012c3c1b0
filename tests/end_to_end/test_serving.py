"""A registered model answers as its checkpoint does: loaded elsewhere, and over HTTP."""

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

from orchestrator.ledger.records import CheckpointRecord
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
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serving")


@pytest.fixture(scope="module")
def predictor(place: Path) -> Predictor:
    """A checkpoint that is registered as champion."""
    written, _ = saved(place, settings("listops", LISTOPS))
    record = CheckpointRecord("s-0", 20, "best", str(written.folder), written.digest, written.bytes, {})
    facts = {"data.digest": "", "data.comparable": False, "metric": "", "direction": "maximize", "value": 0.5}
    destination = Destination(f"sqlite:///{place}/mlflow.db", str(place / "artifacts"), "listops", "s", "1")
    deliver(destination, [events.model("s-0", "rotrnn-listops", record, "", facts, 1)])
    return Predictor(written.folder, written.digest)


def _environment(place: Path) -> dict[str, str]:
    """Return the environment of a machine with MLflow and JAX, nothing of ours on its path, and no pickle."""
    ours = {
        **environment(),
        "MLFLOW_TRACKING_URI": f"sqlite:///{place}/mlflow.db",
        "JAX_PLATFORMS": "cpu",
        # MLflow starts its server by name.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    return {name: value for name, value in ours.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def address(place: Path, predictor: Predictor) -> Iterator[str]:
    """Serve the champion with MLflow's own command; give its address."""
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
        [sys.executable, "-m", "mlflow", *command], env=_environment(place), cwd=place, start_new_session=True
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


def test_another_process_loads_the_champion(place: Path, predictor: Predictor) -> None:
    """By its name alone, with the code that it brings."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, MODEL, json.dumps(EXPRESSIONS)],
        env=_environment(place),
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert "/artifacts/" in found["code"], "the model's own code is what answers"
    _assert_same(found["answers"], predictor)


def test_the_server_answers_as_the_checkpoint_does(address: str, predictor: Predictor) -> None:
    status, text = _posted(address, {"inputs": EXPRESSIONS})
    assert status == 200, text
    rows = json.loads(text)["predictions"]
    _assert_same({name: [row[name] for row in rows] for name in rows[0]}, predictor)
    status, same = _posted(address, {"dataframe_split": {"data": [[each] for each in EXPRESSIONS]}})
    assert (status, same) == (200, text)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"inputs": ["[MAX 2 ten ]"]}, "must be a ListOps expression, got unknown token 'ten'"),
        ({"inputs": ["[MAX " + "1 " * 50 + "]"]}, "must have at most 39 tokens"),
        ({"expressions": EXPRESSIONS}, "inputs"),
        (b"{", "JSON"),
    ],
)
def test_a_wrong_input_is_told_what_is_right(address: str, document: Any, said: str) -> None:
    """With a code of the client's own fault, and words."""
    status, text = _posted(address, document)
    assert 400 <= status < 500, text
    assert said in text
    assert "Traceback" not in json.loads(text).get("message", "")


def _assert_same(answers: dict[str, list[Any]], predictor: Predictor) -> None:
    expected = predictor.predict(EXPRESSIONS)
    assert answers["answer"] == expected["answer"]
    for found, wanted in zip(answers["probabilities"], expected["probabilities"], strict=True):
        assert found == pytest.approx(wanted, rel=1e-5)
