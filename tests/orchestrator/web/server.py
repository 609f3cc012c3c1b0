"""A real HTTP server over a small ledger, and a client that sends requests to it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from orchestrator.api.workspace import Workspace
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people import users
from orchestrator.ledger.people.audit import COMMAND_LINE
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.submissions import SubmissionRequest
from orchestrator.web.server import Listening, serving
from tests import sweeps

ROLES = {"vera": "viewer", "ada": "member", "bob": "member", "grace": "admin"}
"""Users of every server and their roles; Ada owns the sweeps."""

QUEUED = "copying-0badcafe"
"""ID of a queued sweep of Ada."""

FILE = """\
task: copy
data: {delay: 10, examples: 200}
model: {layer: lru, depth: 1, d_model: 8, d_state: 8}
training: {steps: 20, interval: 10, batch_size: 4, recurrent_learning_rate: 0.001}
evaluate: {examples: 20}
search: {learning_rate: {log_uniform: [1e-4, 1e-1]}}
objective: {minimize: val/loss}
sampler: {random: {seed: 0}}
scheduler: none
budget: {trials: 2}
resources: {cpu: 1}
"""

LEARNS = FILE.replace("minimize: val/loss", "maximize: val/accuracy").replace("random:", "tpe:")
"""A file that can learn from the finished sweep of `served`: its objective is the same."""


@dataclass(frozen=True)
class Answer:
    """An answer of the server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Event:
    """A server-sent event."""

    id: str
    kind: str
    data: Any


def _events(answer: http.client.HTTPResponse) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in answer:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name in {"id", "event", "data"}:
            fields[name] = value
        elif not name and fields:
            yield Event(fields["id"], fields["event"], json.loads(fields["data"]))
            fields = {}


@dataclass(frozen=True)
class Client:
    """Sends requests to a server.

    Attributes:
        address: of the server.
        workspace: of the server.
        tokens: by the name of the user.
    """

    address: str
    workspace: Workspace
    tokens: Mapping[str, str]

    def send(
        self,
        method: str,
        path: str,
        user: str | None = None,
        *,
        body: object = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request, with the token of a user."""
        own = {"Authorization": f"Bearer {self.tokens[user]}"} if user else {}
        if body is not None:
            content = json.dumps(body).encode()
        if content is not None:
            own["Content-Type"] = "application/json"
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=60)
        try:
            connection.request(method, path, content, {**own, **(headers or {})})
            answer = connection.getresponse()
            named: dict[str, str] = {}
            for name, value in answer.getheaders():  # an answer may set several cookies
                known = named.get(name.lower())
                named[name.lower()] = value if known is None else f"{known}, {value}"
            is_stream = named.get("content-type", "").startswith("text/event-stream")
            return Answer(answer.status, named, b"" if is_stream else answer.read())
        finally:
            connection.close()

    @contextmanager
    def events(self, path: str, user: str, last_id: str | None = None) -> Iterator[Iterator[Event]]:
        """Open a stream of events, and close it at the end of a `with` block."""
        headers = {"Authorization": f"Bearer {self.tokens[user]}"}
        if last_id is not None:
            headers["Last-Event-ID"] = last_id
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=60)
        connection.request("GET", f"/api/v1{path}", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200
        try:
            yield _events(answer)
        finally:
            connection.close()

    def get(self, path: str, user: str = "vera") -> Any:
        """Return the document of a path of the API."""
        answer = self.send("GET", f"/api/v1{path}", user)
        assert answer.status == 200, answer.body
        return answer.document


def order(owner: str, sweep_id: str) -> SubmissionRequest:
    document = dict(sweeps.sweep_record().document)
    return SubmissionRequest(owner, document, FILE, {"data": "data", "wait": None}, sweep_id, "c0ffee")


def _always(sweep_id: str) -> Callable[[Callable[[str], bool]], str]:
    return lambda is_known: sweep_id


@contextmanager
def served(root: Path, **listening: Any) -> Iterator[Client]:
    """Serve a finished sweep and a queued one, both of Ada, for a `with` block."""
    paths = sweeps.filled(root)
    ledger = Ledger.open(paths.ledger_url)
    for sweep_id in (sweeps.SWEEP_ID, QUEUED):
        submissions.submit(ledger, order("ada", sweep_id), _always(sweep_id))
    ended = submissions.submission(ledger, sweeps.SWEEP_ID)
    assert ended is not None
    submissions.end(ledger, sweeps.SWEEP_ID, ended.starts, 0, None)
    with ledger.writer() as connection:
        connection.exec_driver_sql(
            f"UPDATE submission SET state = 'ENDED' WHERE sweep_id = '{sweeps.SWEEP_ID}'"
        )
        connection.commit()
    tokens = {name: users.add_user(ledger, name, role, COMMAND_LINE)[1] for name, role in ROLES.items()}
    ledger.close()
    workspace = Workspace.at(root, root.parent / "data")
    with serving(workspace, Listening(0, **listening)) as address:
        yield Client(address, workspace, tokens)
