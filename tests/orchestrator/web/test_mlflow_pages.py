"""Only the browser that has opened the link can use MLflow's pages."""

from __future__ import annotations

import json
import socket
import socketserver
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from orchestrator.api.workspace import Workspace
from orchestrator.errors import BadInput
from orchestrator.web import mlflow_pages
from tests.orchestrator.web.server import Answer, Client

ARTIFACT = "/get-artifact?run_uuid=1&path="
CREATE = "/ajax-api/2.0/mlflow/experiments/create"


class MLflow(BaseHTTPRequestHandler):
    """Stand-in for MLflow: echoes every request, and allows every origin."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        received = {"method": self.command, "target": self.path, "headers": dict(self.headers), "body": body}
        content = json.dumps(received).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Access-Control-Allow-Origin", "*")
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _answer  # noqa: N815  # the names that the base class calls

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@dataclass
class Owner:
    """Opens the link, and sends requests with the cookie."""

    link: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.link)
        self.host = parts.netloc
        self.client = Client(f"http://{parts.netloc}", Workspace.at("mlruns"), {})
        self.cookie = ""

    def open(self) -> Answer:
        answer = self.client.send("GET", self.link.removeprefix(f"http://{self.host}"))
        self.cookie = answer.headers.get("set-cookie", "").partition(";")[0]
        return answer

    def send(
        self, method: str, path: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        return self.client.send(
            method, path, content=content, headers={"Cookie": self.cookie, **(headers or {})}
        )


FIRST = "#/experiments/1/runs?workflowType=machine_learning"


@pytest.fixture
def link() -> Iterator[str]:
    """Serve the pages of a stand-in for MLflow, and return the link that opens them."""
    with tempfile.TemporaryDirectory(prefix="ui-") as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        address = Path(folder) / "s"
        with socketserver.ThreadingUnixStreamServer(str(address), MLflow) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            with mlflow_pages.serving(address, port, FIRST) as opens:
                yield opens
            server.shutdown()


@pytest.fixture
def owner(link: str) -> Owner:
    """Return a browser that has opened the link."""
    opened = Owner(link)
    assert opened.open().status == 200
    return opened


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/"), ("GET", f"{ARTIFACT}a"), ("POST", CREATE), ("GET", "/?key=wrong")]
)
def test_without_the_link_nothing_is_passed_on(link: str, method: str, path: str) -> None:
    answer = Owner(link).send(method, path, b"{}" if method == "POST" else None)
    assert answer.status == 403
    assert b"sweep ui" in answer.body


def test_the_link_works_once(link: str) -> None:
    first = Owner(link).open()
    assert first.status == 200
    assert f'content="0; url=/{FIRST}"' in first.body.decode()
    assert {"HttpOnly", "SameSite=strict"} <= set(first.headers["set-cookie"].split("; "))
    assert urlsplit(link).query.removeprefix("key=") not in first.headers["set-cookie"]
    assert Owner(link).open().status == 403


def test_what_the_owner_asks_for_is_passed_on(owner: Owner) -> None:
    path = f"/ajax-api/2.0/mlflow/runs%2Fx?path={quote('plots/a b.png')}"
    answer = owner.send("GET", path)
    assert answer.status == 200
    assert answer.document["target"] == path
    received = {name.lower(): value for name, value in answer.document["headers"].items()}
    assert received["host"] == "localhost"
    assert "cookie" not in received
    assert "access-control-allow-origin" not in answer.headers
    written = owner.send("POST", CREATE, b'{"name": "x"}', {"Origin": f"http://{owner.host}"})
    assert (written.document["method"], written.document["body"]) == ("POST", '{"name": "x"}')


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost:1", "127.0.0.1.evil.example:80"])
def test_a_forged_host_is_refused(owner: Owner, host: str) -> None:
    assert owner.send("GET", "/", headers={"Host": host}).status == 403
    assert owner.send("POST", CREATE, b"{}", {"Host": host, "Origin": f"http://{host}"}).status == 403


@pytest.mark.parametrize("origin", [None, "https://evil.example", "http://127.0.0.1:1", "null"])
def test_another_site_changes_nothing(owner: Owner, origin: str | None) -> None:
    """Another port is the same site for a browser, which sends the cookie there."""
    headers = {} if origin is None else {"Origin": origin}
    assert owner.send("POST", CREATE, b"{}", headers).status == 403
    assert (
        owner.send("GET", "/", headers={"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}).status
        == 403
    )


@pytest.mark.slow_after(6)
@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../../etc/passwd",
        "a/../../b",
        "file:///etc/passwd",
        "..\\b",
        "%252e%252e/b",
        "%2Fetc",
        "a%00",
    ],
)
@pytest.mark.parametrize("name", ["path", "artifact_path", "artifact_file_path"])
def test_no_artifact_is_outside_of_the_artifacts(owner: Owner, path: str, name: str) -> None:
    answer = owner.send("GET", f"/get-artifact?run_uuid=1&{name}={quote(path)}")
    assert answer.status == 400
    assert answer.body.startswith(f"{name} must be a path below the artifacts".encode())


@pytest.mark.parametrize(
    "body", [b'{"artifact_location": "/"}', b'{"x": [{"artifactLocation": "file:///etc"}]}', b"[" * 100_000]
)
def test_no_experiment_has_its_artifacts_elsewhere(owner: Owner, body: bytes) -> None:
    assert owner.send("POST", CREATE, body, {"Origin": f"http://{owner.host}"}).status == 400


def test_a_large_body_is_refused(owner: Owner) -> None:
    body = b'"' + b"x" * mlflow_pages.MOST_BYTES + b'"'
    assert owner.send("POST", CREATE, body, {"Origin": f"http://{owner.host}"}).status == 413


def test_until_mlflow_answers_the_page_tries_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(
                BadInput, match=rf"--port must be a free port of this machine \(got 127.0.0.1 {port}"
            ),
            mlflow_pages.serving(tmp_path / "s", port),
        ):
            pass
    with mlflow_pages.serving(tmp_path / "s", port) as opens:
        early = Owner(opens)
        early.open()
        answer = early.send("GET", "/")
        assert (answer.status, answer.headers["refresh"]) == (503, "1")
