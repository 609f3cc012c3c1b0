"""An agent that speaks the Model Context Protocol gets the client's answers, with its user's role."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mcp
import pytest
from mcp import StdioServerParameters
from mcp.types import CallToolResult

from orchestrator.cli import mcp_verb
from orchestrator.cli.app import run_command
from orchestrator.client.agent_tools import CHANGING, READING
from orchestrator.client.protocol import Backend
from tests import sweeps
from tests.orchestrator.web import server
from tests.orchestrator.web.server import FILE, QUEUED, Client

FOR_PEOPLE = {
    *("shelve", "set_quota", "users", "add_user", "revoke_user", "audit_log", "report", "extend"),
    *("notices", "add_notice", "remove_notice"),
}
"""Methods that are not tools: administration, deletion, notifications, an HTML page, and one whose arguments
have no names."""

Call = tuple[str, Mapping[str, Any]]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with server.served(tmp_path / "mlruns") as client:
        yield client


def stdio(*options: str, **variables: str) -> StdioServerParameters:
    """Return the command `sweep mcp`, as an agent starts it."""
    words = ["-m", "orchestrator.sweep", "mcp", *options]
    environment = {"PYTHONPATH": str(Path.cwd()), **variables}
    return StdioServerParameters(command=sys.executable, args=words, env=environment)


def answers(connection: StdioServerParameters | str, *calls: Call) -> list[CallToolResult]:
    """Call tools over one connection, and return their results."""

    async def called() -> list[CallToolResult]:
        async with mcp.Client(connection) as agent:
            return [await agent.call_tool(name, dict(arguments)) for name, arguments in calls]

    return asyncio.run(called())


def test_every_method_is_a_tool_or_for_people() -> None:
    methods = {name for name in vars(Backend) if not name.startswith("_")}
    assert {*READING, *CHANGING} | FOR_PEOPLE == methods
    assert not {*READING, *CHANGING} & FOR_PEOPLE


@pytest.mark.slow
def test_tools_are_described_and_have_schemas(client: Client) -> None:
    async def listed() -> list[Any]:
        async with mcp.Client(stdio("--root", str(client.workspace.paths.root))) as agent:
            return (await agent.list_tools()).tools

    tools = {tool.name: tool for tool in asyncio.run(listed())}
    assert set(tools) == {*READING, *CHANGING}
    assert all(tool.description for tool in tools.values())
    assert {"file", "key", "overrides"} <= tools["submit"].input_schema["properties"].keys()
    assert tools["trials"].input_schema["required"] == ["sweep"]
    assert tools["trials"].annotations.read_only_hint
    assert tools["stop"].annotations.destructive_hint


@pytest.mark.slow
@pytest.mark.parametrize("place", ["root", "server"])
def test_an_agent_validates_submits_reads_and_stops(client: Client, tmp_path: Path, place: str) -> None:
    """A repeated submission with the same idempotency key adds nothing."""
    file = tmp_path / "small.yaml"
    file.write_text(FILE)
    submit = ("submit", {"file": str(file), "key": "monday"})
    connection = (
        stdio("--root", str(client.workspace.paths.root))
        if place == "root"
        else stdio("--server", client.address, SWEEP_TOKEN=client.tokens["ada"])
    )
    results = answers(
        connection,
        ("validate", {"file": str(file), "sizes": False}),
        submit,
        submit,
        ("status", {"sweep": "small"}),
        ("trials", {"sweep": sweeps.SWEEP_ID}),
        ("compare", {"sweeps": [sweeps.SWEEP_ID]}),
        ("stop", {"sweep": "small"}),
        ("status", {"sweep": QUEUED}),
    )
    assert [result.content[0].text for result in results if result.is_error] == []  # type: ignore[union-attr]
    plan, first, second, status, trials, compared, stopped, queued = (
        one.structured_content for one in results
    )
    assert first is not None
    assert second is not None
    assert status is not None
    assert trials is not None
    assert all((plan, compared, stopped, queued))
    assert second["id"] == first["id"]
    assert client.get("/sweeps?name=small")["total"] == 1
    assert status["id"] == first["id"]
    shown = client.get(f"/sweeps/{sweeps.SWEEP_ID}/trials?sort=number")["trials"]
    assert {row["key"] for row in trials["result"]} == {row["key"] for row in shown}
    assert json.loads(results[4].content[0].text) == trials  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_refused_call_has_the_four_parts_of_the_http_api(client: Client) -> None:
    (result,) = answers(stdio("--root", str(client.workspace.paths.root)), ("stop", {"sweep": "unknown"}))
    assert result.is_error
    assert result.structured_content is not None
    assert result.structured_content["error"] == "NotFound"
    assert {"where", "must", "got", "remedy"} <= result.structured_content.keys()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("user", "refused"), [("vera", True), ("bob", True), ("ada", False), ("grace", False)]
)
def test_a_tool_has_the_role_of_the_user(client: Client, user: str, refused: bool) -> None:
    """Ada owns the queued sweep; Bob is another member, Vera a viewer and Grace an admin."""
    connection = stdio("--server", client.address, SWEEP_TOKEN=client.tokens[user])
    read, stopped = answers(connection, ("status", {"sweep": QUEUED}), ("stop", {"sweep": QUEUED}))
    assert not read.is_error
    assert stopped.is_error is refused
    if refused:
        assert stopped.structured_content is not None
        assert stopped.structured_content["error"] == "NotAllowed"


def test_a_wrong_token_ends_the_command(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SWEEP_TOKEN", "wrong")
    assert run_command(["mcp", "--server", client.address]) == 2
    assert "must be the valid token of a user" in capsys.readouterr().err


def test_without_the_extra_the_command_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mcp_verb, "find_spec", lambda name: None)
    assert run_command(["mcp"]) == 2
    assert "pip install 'rotrnn-sweeps[agents]'" in capsys.readouterr().err
