"""No token appears in the output, the ledger or the answers of a service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.api import user_admin
from orchestrator.api.workspace import Workspace
from orchestrator.web.access import CHANGE_HEADER, COOKIE
from tests import sweeps
from tests.orchestrator.web.server import ROLES, Answer, Client

SWEEP = f"/api/v1/sweeps/{sweeps.SWEEP_ID}"
WRONG = "wrong-token-0123456789abcdefghijklmnopqrstuvwxyz"


@contextmanager
def process(root: Path, log: Path) -> Iterator[Client]:
    """Run `sweep serve` in a process of its own, which writes all its output to a log."""
    sweeps.filled(root)
    tokens = {name: user_admin.add(name, role, root=root)[1] for name, role in ROLES.items()}
    words = ["-m", "orchestrator.sweep", "serve", "--http", "0", "--root", str(root)]
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [sys.executable, *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PYTHONUNBUFFERED": "1", "SWEEP_WARM": "0"},
        ) as service,
    ):
        assert service.stdout is not None
        line = service.stdout.readline()
        address = line.decode().split()[5].removesuffix("/api/v1;")
        try:
            yield Client(address, Workspace.at(root), tokens)
        finally:
            service.send_signal(signal.SIGTERM)
            printed = line + service.stdout.read()
            service.wait(30)
        errors.write(printed)


def requests(client: Client, token: str) -> Iterator[Answer]:
    """Send a token wherever a request can hold one, and yield the answers."""
    bearer = {"Authorization": f"Bearer {token}"}
    own = {"Origin": client.address, CHANGE_HEADER: "1"}
    cookie = {"Cookie": f"{COOKIE}={token}", **own}
    yield client.send("GET", "/api/v1/audit", headers=bearer)
    yield client.send("GET", "/api/v1/me", headers={"Authorization": f"Basic {token}"})
    yield client.send("GET", f"/api/v1/queue?token={token}", headers=bearer)
    yield client.send("GET", f"/api/v1/queue?access_token={token}")
    yield client.send("GET", f"{SWEEP}/trials?sort=nothing", headers=bearer)
    yield client.send("POST", f"{SWEEP}/stop", headers=cookie)
    yield client.send("POST", f"{SWEEP}/stop", headers={**cookie, "Origin": "https://evil.example"})
    yield client.send("POST", f"{SWEEP}/resume", headers={**bearer, "If-Match": token})
    yield client.send("PATCH", SWEEP, body={"priority_class": token}, headers=bearer)
    yield client.send("PATCH", SWEEP, body={"weight": 2.0}, headers={**bearer, "If-Match": '"old"'})
    yield client.send("POST", "/api/v1/session", body={"token": token * 5}, headers=own)
    yield client.send("POST", "/api/v1/session", body={"tokens": token}, headers=own)
    yield client.send("POST", "/api/v1/sweeps", body={"name": "x", "text": "task: no"}, headers=bearer)
    yield client.send("POST", "/api/v1/sweeps", content=f'{{"{token}'.encode(), headers=bearer)
    yield client.send("GET", "/api/v1/nothing", headers={**bearer, "Referer": f"https://a/{token}"})


def test_no_token_is_printed_recorded_or_answered(tmp_path: Path) -> None:
    log, root = tmp_path / "log", tmp_path / "mlruns"
    with process(root, log) as client:
        sent = client.tokens["vera"], client.tokens["grace"], WRONG
        answers = [answer for token in sent for answer in requests(client, token)]
        added = client.send("POST", "/api/v1/users", "grace", body={"name": "eve"}).document["token"]
        with client.workspace.ledger() as ledger, ledger.writer() as connection:
            refusing = "BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no entry'); END"
            connection.exec_driver_sql(f"CREATE TRIGGER refuse {refusing}")
            connection.commit()
        answers.append(client.send("POST", "/api/v1/users", "grace", body={"name": "mallory"}))
        answers.append(client.send("PATCH", SWEEP, "grace", body={"weight": 3.0}))
        audit = json.dumps(client.get("/audit", "grace"))
    statuses = {answer.status for answer in answers}
    assert statuses >= {200, 401, 403, 404, 409, 412, 422, 429, 500}, statuses
    places = {f"answer {number}": answer.body for number, answer in enumerate(answers)}
    places |= {f"headers {number}": str(answer.headers).encode() for number, answer in enumerate(answers)}
    places |= {"audit": audit.encode(), "log": log.read_bytes()}
    places |= {str(file): file.read_bytes() for file in root.rglob("*") if file.is_file()}
    assert "eve" in audit
    assert b"no entry" in places["log"], "a crash is in the log, with its traceback"
    found = {
        (name, place)
        for name, token in {**client.tokens, "eve": added, "nobody": WRONG}.items()
        for place, content in places.items()
        if token.encode() in content
    }
    assert not found
