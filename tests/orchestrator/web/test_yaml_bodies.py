"""Search-space files as request bodies in YAML."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from orchestrator.ledger.queue import submissions
from orchestrator.web.application import MOST_BYTES
from orchestrator.web.http_errors import MEDIA_TYPE
from tests.orchestrator.web.server import FILE, Answer, Client

Query = dict[str, str | list[str]]


def send(
    client: Client,
    path: str,
    query: Query,
    content: bytes = FILE.encode(),
    *,
    kind: str = "application/yaml",
    key: str | None = None,
) -> Answer:
    headers = {"Content-Type": kind} | ({} if key is None else {"Idempotency-Key": key})
    address = f"/api/v1{path}?{urlencode(query, doseq=True)}"
    return client.send("POST", address, "ada", content=content, headers=headers)


def test_a_file_in_yaml_is_the_same_submission_as_in_json(client: Client) -> None:
    """Both formats give the same sweep, and with one idempotency key they are one request."""
    query: Query = {"name": "small", "overrides": ["budget.trials=3", "budget.hours=2"], "new": "true"}
    first = send(client, "/sweeps", query, kind="Application/YAML; charset=utf-8", key="k")
    assert first.status == 202, first.body
    with client.workspace.ledger() as ledger:
        entry = submissions.submission(ledger, first.document["id"])
    assert entry is not None
    assert (entry.text, entry.owner) == (FILE, "ada")
    assert (entry.document["budget"]["trials"], entry.document["budget"]["hours"]) == (3, 2)
    body = {"name": "small", "text": FILE, "overrides": query["overrides"], "new": True}
    again = client.send("POST", "/api/v1/sweeps", "ada", body=body, headers={"Idempotency-Key": "k"})
    assert (again.status, again.document) == (202, first.document)


@pytest.mark.slow
def test_a_file_in_yaml_is_checked_like_one_in_json(reader: Client) -> None:
    valid = send(reader, "/validate", {"name": "small"})
    body = {"name": "small", "text": FILE}
    assert valid.document == reader.send("POST", "/api/v1/validate", "ada", body=body).document
    assert valid.document["plan"]["trials"] == 2
    wrong = send(reader, "/validate", {"name": "small"}, FILE.replace("lru", "lur").encode())
    assert "small.yaml" in wrong.document["refusals"][0]["where"]


@pytest.mark.parametrize("path", ["/sweeps", "/validate"])
@pytest.mark.parametrize("kind", ["text/plain", "application/toml", "application/x-www-form-urlencoded", ""])
def test_another_format_is_refused(reader: Client, path: str, kind: str) -> None:
    answer = send(reader, path, {"name": "small"}, kind=kind)
    assert (answer.status, answer.headers["content-type"]) == (415, MEDIA_TYPE)
    parts = {name: answer.document[name] for name in ("where", "must", "got", "remedy")}
    assert parts == {
        "where": "Content-Type",
        "must": "must be application/json or application/yaml",
        "got": kind or "nothing",
        "remedy": "Name the format of the body.",
    }


@pytest.mark.parametrize(
    ("query", "content", "status", "where"),
    [
        ({}, FILE.encode(), 422, "body.name"),
        ({"name": "../small"}, FILE.encode(), 422, "body.name"),
        ({"name": "small", "root": "/tmp"}, FILE.encode(), 422, "body.root"),
        ({"name": "small", "text": FILE}, b"", 422, "query.text"),
        ({"name": "small"}, b"", 422, "body.text"),
        ({"name": "small"}, FILE.encode() + b"# \xff", 422, "body"),
        ({"name": "small"}, b"#" * (MOST_BYTES + 1), 413, "body"),
        ({"name": "small"}, b"a: &a [*a]\n", 422, "small.yaml"),
    ],
)
def test_what_a_file_in_yaml_may_not_be(
    reader: Client, query: Query, content: bytes, status: int, where: str
) -> None:
    answer = send(reader, "/sweeps", query, content)
    assert answer.status == status, answer.body
    assert answer.document["where"].startswith(where)


def test_a_long_body_of_unknown_length_is_refused(reader: Client) -> None:
    """Without a length, the body is refused while it arrives."""
    part = b"#" * 100_000
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for _ in range(3)) + b"0\r\n\r\n"
    headers = {"Content-Type": "application/yaml", "Transfer-Encoding": "chunked"}
    answer = reader.send("POST", "/api/v1/sweeps?name=small", "ada", content=chunked, headers=headers)
    assert answer.status == 413, answer.body


def test_a_file_in_yaml_needs_a_token(reader: Client) -> None:
    headers = {"Content-Type": "application/yaml"}
    answer = reader.send("POST", "/api/v1/sweeps?name=small", content=FILE.encode(), headers=headers)
    assert answer.status == 401
