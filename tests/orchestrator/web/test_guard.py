"""Host checks, security headers, size limits and listening addresses."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from importlib.resources import files
from pathlib import Path

import pytest

from orchestrator.api.workspace import Workspace
from orchestrator.errors import BadInput
from orchestrator.web.application import MOST_BYTES
from orchestrator.web.file_routes import report_policy
from orchestrator.web.server import Listening, serving
from tests import sweeps
from tests.orchestrator.web.server import Client


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "", "localhost.evil"])
def test_a_foreign_host_is_refused(reader: Client, host: str) -> None:
    answer = reader.send("GET", "/api/v1/healthz", headers={"Host": host})
    assert answer.status == 403
    assert answer.document["where"] == "Host"


@pytest.mark.parametrize(
    "path", ["/api/v1/healthz", "/api/v1/me", "/nothing", f"/api/v1/sweeps/{sweeps.SWEEP_ID}/report"]
)
def test_every_answer_protects_browsers(reader: Client, path: str) -> None:
    answer = reader.send("GET", path, "vera")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "unsafe-eval" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "server" not in answer.headers


def test_a_report_has_no_access_to_the_page(reader: Client) -> None:
    answer = reader.send("GET", f"/api/v1/sweeps/{sweeps.SWEEP_ID}/report", "vera")
    assert answer.status == 200
    assert b"<html" in answer.body
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts;")
    assert "allow-same-origin" not in policy


def test_a_large_body_is_refused(reader: Client) -> None:
    body = {"name": "big", "text": "x" * MOST_BYTES}
    answer = reader.send("POST", "/api/v1/sweeps", "ada", body=body)
    assert answer.status == 413
    assert answer.document["where"] == "body"


def test_an_unknown_address_is_a_problem(reader: Client) -> None:
    answer = reader.send("GET", "/api/v1/nothing", "vera")
    assert (answer.status, answer.headers["content-type"]) == (404, "application/problem+json")
    assert reader.send("GET", "/docs", "vera").status == 404, "its scripts would come from another site"


@pytest.mark.parametrize(
    ("listening", "match"),
    [
        (Listening(0, "0.0.0.0"), "must be a loopback address unless TLS is used"),
        (Listening(0, "::"), "must be a loopback address unless TLS is used"),
        (Listening(0, "example.org"), "must be an IP address"),
        (Listening(0, "0.0.0.0", certificate=Path("missing.pem")), "--certificate must be an existing file"),
    ],
)
def test_others_do_not_reach_the_server_without_tls(tmp_path: Path, listening: Listening, match: str) -> None:
    with pytest.raises(BadInput, match=match), serving(Workspace.at(tmp_path), listening):
        pass


def test_behind_a_proxy_it_may_listen_elsewhere() -> None:
    listening = Listening(0, "0.0.0.0", behind_proxy=True, names=("Sweeps.Example",))
    listening.check()
    assert listening.is_secure
    assert "sweeps.example" in listening.hosts


def test_behind_a_proxy_a_request_that_came_without_tls_is_refused(tmp_path: Path) -> None:
    """The proxy sets `X-Forwarded-Proto`; a direct request has no such header."""
    with serving(Workspace.at(tmp_path), Listening(0, behind_proxy=True)) as address:
        client = Client(address.replace("https", "http"), Workspace.at(tmp_path), {})
        for headers in ({}, {"X-Forwarded-Proto": "http"}):
            answer = client.send("GET", "/api/v1/me", headers=headers)
            assert (answer.status, answer.document["where"]) == (403, "scheme")
            assert client.send("GET", "/api/v1/healthz", headers=headers).status == 200
        assert client.send("GET", "/api/v1/me", headers={"X-Forwarded-Proto": "https"}).status == 401


def test_a_port_that_is_taken_is_refused(reader: Client) -> None:
    port = int(reader.address.rpartition(":")[2])
    with pytest.raises(BadInput, match="must be a free port"), serving(reader.workspace, Listening(port)):
        pass


def test_a_report_permits_the_scripts_that_its_head_names_and_nothing_else(reader: Client) -> None:
    answer = reader.send("GET", f"/api/v1/sweeps/{sweeps.SWEEP_ID}/report", "vera")
    packed = re.findall(rb'<script type="text/plain" id="plotly">(.*?)</script>', answer.body)
    plotly = [gzip.decompress(base64.b64decode(content)) for content in packed]
    scripts = [*plotly, *re.findall(rb"<script>(.*?)</script>", answer.body, re.DOTALL)]
    digests = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'" for script in scripts
    )
    assert len(scripts) == 2
    assert f"; script-src {digests}; " in answer.headers["content-security-policy"]
    assert "'unsafe-inline'" not in answer.headers["content-security-policy"].partition("style-src")[0]


def test_no_script_of_the_page_writes_html() -> None:
    """Names, causes and logs come from users, and are inserted as text only."""
    scripts = [
        file for file in files("orchestrator.web").joinpath("assets").iterdir() if file.name.endswith(".js")
    ]
    assert len(scripts) > 10
    writes = re.compile(
        r"(inner|outer)HTML\s*\+?=[^=]|insertAdjacentHTML|document\.write|\beval\(|new Function"
    )
    assert [script.name for script in scripts if writes.search(script.read_text())] == []


@pytest.mark.parametrize("sources", ["'unsafe-inline'", "'self'", "'sha256-x'", "https://evil.example"])
def test_a_file_without_digests_of_its_scripts_runs_none(sources: str) -> None:
    policy = f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'"
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    assert "; script-src 'none'; " in report_policy(head.encode())
