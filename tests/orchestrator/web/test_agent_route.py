"""Agents call tools over HTTP at /mcp, with the roles, the limits and the keys of the API."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import mcp
import pytest
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

from orchestrator.api.local import LocalBackend
from orchestrator.client.agent_tools import CHANGING, MOST_CALLS, READING
from orchestrator.web import agent_route
from orchestrator.web.app_state import SUBMISSIONS_A_MINUTE
from tests import sweeps
from tests.orchestrator.web.server import FILE, QUEUED, Client

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPTED = {"Accept": "application/json, text/event-stream"}

Call = tuple[str, Mapping[str, Any]]


def called(client: Client, user: str, *calls: Call, at_once: bool = False) -> list[CallToolResult]:
    """Call tools as a user over one connection of the SDK's client; return their results."""

    async def results() -> list[CallToolResult]:
        headers = {"Authorization": f"Bearer {client.tokens[user]}"}
        async with httpx2.AsyncClient(headers=headers, timeout=120.0) as connection:
            transport = streamable_http_client(f"{client.address}/mcp", http_client=connection)
            async with mcp.Client(transport) as agent:
                answers = [agent.call_tool(name, dict(arguments)) for name, arguments in calls]
                return await asyncio.gather(*answers) if at_once else [await answer for answer in answers]

    return asyncio.run(results())


def test_the_tools_are_those_over_standard_input_but_files_are_texts(client: Client) -> None:
    async def listed() -> list[Any]:
        headers = {"Authorization": f"Bearer {client.tokens['vera']}"}
        async with httpx2.AsyncClient(headers=headers) as connection:
            transport = streamable_http_client(f"{client.address}/mcp", http_client=connection)
            async with mcp.Client(transport) as agent:
                return (await agent.list_tools()).tools

    tools = {tool.name: tool for tool in asyncio.run(listed())}
    assert set(tools) == {*READING, *CHANGING}
    for name in ("submit", "validate"):
        assert {"name", "text"} <= set(tools[name].input_schema["required"])
        assert "file" not in tools[name].input_schema["properties"]
    paths = [tool.name for tool in tools.values() if "path" in str(tool.input_schema).lower()]
    assert not paths, "no tool reads or writes a file of the server"


@pytest.mark.slow
def test_an_agent_validates_submits_reads_and_stops(client: Client) -> None:
    """A repeated submission with the same idempotency key adds nothing."""
    submit = ("submit", {"name": "small", "text": FILE, "key": "monday"})
    results = called(
        client,
        "ada",
        ("validate", {"name": "small", "text": FILE, "sizes": False}),
        submit,
        submit,
        ("status", {"sweep": "small"}),
        ("trials", {"sweep": sweeps.SWEEP_ID}),
        ("compare", {"sweeps": [sweeps.SWEEP_ID]}),
        ("stop", {"sweep": "small"}),
    )
    assert [result.content for result in results if result.is_error] == []
    _, first, second, status, trials, *_ = (one.structured_content for one in results)
    assert first is not None
    assert second is not None
    assert status is not None
    assert trials is not None
    assert second["id"] == first["id"] == status["id"]
    assert client.get("/sweeps?name=small")["total"] == 1
    shown = client.get(f"/sweeps/{sweeps.SWEEP_ID}/trials?sort=number")["trials"]
    assert {row["key"] for row in trials["result"]} == {row["key"] for row in shown}
    audit = client.get("/audit", "grace")["audit"]
    assert {(entry["actor"], entry["action"]) for entry in audit[:2]} == {("ada", "submit"), ("ada", "stop")}


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("user", "refused"), [("vera", True), ("bob", True), ("ada", False), ("grace", False)]
)
def test_a_tool_has_the_role_of_the_user(client: Client, user: str, refused: bool) -> None:
    """A refused tool answers in the words of the API. Ada owns the queued sweep."""
    direct = client.send("POST", f"/api/v1/sweeps/{QUEUED}/stop", user) if refused else None
    read, stopped = called(client, user, ("status", {"sweep": QUEUED}), ("stop", {"sweep": QUEUED}))
    assert not read.is_error
    assert stopped.is_error is refused
    if direct is not None:
        problem = direct.document
        parts = stopped.structured_content
        assert parts is not None
        assert parts == {part: problem[part] for part in ("error", "where", "must", "got", "remedy")}
        assert parts["error"] == "NotAllowed"


@pytest.mark.slow
def test_calls_at_once_have_the_role_of_their_own_user(client: Client) -> None:
    """More calls than threads: each gets an answer, and none the rights of another."""

    def stops(user: str) -> list[CallToolResult]:
        given: list[Call] = [("note", {"sweep": QUEUED, "add": [user]})] * (MOST_CALLS // 2 + 5)
        return called(client, user, *given, at_once=True)

    async def both() -> list[list[CallToolResult]]:
        return await asyncio.gather(*(asyncio.to_thread(stops, user) for user in ("ada", "bob")))

    ada, bob = asyncio.run(both())
    assert not any(result.is_error for result in ada)
    assert all(result.is_error for result in bob)


def test_the_limits_of_the_api_hold(client: Client) -> None:
    calls: list[Call] = [("resume", {"sweep": QUEUED})] * (SUBMISSIONS_A_MINUTE + 1)
    *_, last = called(client, "ada", *calls)
    assert last.is_error
    assert last.structured_content is not None
    assert last.structured_content["error"] == "TooManyRequests"


def test_a_tool_never_opens_a_path_of_the_server(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(FILE)
    by_path, as_text = called(
        client, "ada", ("submit", {"file": str(file)}), ("submit", {"name": "small", "text": str(file)})
    )
    assert by_path.is_error
    assert as_text.is_error
    assert as_text.structured_content is not None
    assert as_text.structured_content["error"] == "BadInput"
    assert client.get("/sweeps?name=small")["total"] == 0


def test_a_crash_stays_in_the_log_of_the_service(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: LocalBackend) -> None:
        raise RuntimeError("a path of the service")

    monkeypatch.setattr(LocalBackend, "queue", fails)
    [result] = called(client, "vera", ("queue", {}))
    assert result.is_error
    assert "internal error" in str(result.content)
    assert "a path of the service" not in str(result.content)
    assert "a path of the service" in caplog.text


@pytest.mark.parametrize("token", [None, "wrong"])
def test_a_stranger_is_refused_before_the_protocol(client: Client, token: str | None) -> None:
    headers = {**ACCEPTED, **({"Authorization": f"Bearer {token}"} if token else {})}
    answer = client.send("POST", "/mcp", body=PING, headers=headers)
    assert answer.status == 401
    assert answer.document["error"] == "NotSignedIn"
    assert client.send("GET", "/mcp", headers=headers).status == 405


def test_another_host_and_a_large_body_are_refused(client: Client) -> None:
    other = {**ACCEPTED, "Host": "evil.example"}
    assert client.send("POST", "/mcp", "ada", body=PING, headers=other).status == 403
    large = {**PING, "params": {"text": "x" * 300_000}}
    assert client.send("POST", "/mcp", "ada", body=large, headers=ACCEPTED).status == 413


def test_without_the_extra_the_path_is_not_found(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_route, "find_spec", lambda name: None)
    answer = client.send("POST", "/mcp", "ada", body=PING, headers=ACCEPTED)
    assert answer.status == 404
    assert "rotrnn-sweeps[agents]" in answer.document["detail"]
