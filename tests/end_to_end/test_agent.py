"""An agent runs a whole search on a real Ray, by the tools of `sweep mcp` and of `serve --http`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import mcp
import pytest
from mcp import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from orchestrator.errors import Exit
from tests.end_to_end.commands import Commands, finish, wait_for
from tests.end_to_end.test_http_sweeps import FILE, TRAINING
from tests.end_to_end.test_script_runs import free_port
from tests.orchestrator.web.server import FILE as NETWORK

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

PATIENCE = 240.0
"""Seconds until a sweep of two trials must have ended."""


async def search(connection: Any, given: Mapping[str, str], transcript: list[str]) -> dict[str, Any]:
    """Run a search to its end; return the answer of each tool, by the name of the tool.

    Args:
        connection: Server, as the client of the SDK takes it.
        given: Search-space file, as the tools `validate` and `submit` take it.
        transcript: Calls and the beginning of each answer.
    """
    answers: dict[str, Any] = {}

    async with mcp.Client(connection) as agent:

        async def ask(tool: str, **arguments: Any) -> Any:
            result = await agent.call_tool(tool, arguments)
            answers[tool] = result.structured_content
            shown = json.dumps(result.structured_content)
            transcript.append(f"{tool} {json.dumps(arguments)}\n  -> {shown[:200]}")
            return result.structured_content

        await ask("validate", **given)
        submitted = await ask("submit", **given, key="monday")
        async with asyncio.timeout(PATIENCE):
            # The service notices the end of a driver in its next round; until then `stop` is accepted.
            while (await ask("status", sweep=submitted["id"]))["submission"] != "ENDED":
                await asyncio.sleep(1.0)
        await ask("trials", sweep=submitted["id"])
        await ask("curves", sweep=submitted["id"])
        await ask("compare", sweeps=[submitted["id"]])
        await ask("stop", sweep=submitted["id"])
    return answers


def test_an_agent_runs_a_search(commands: Commands, tmp_path: Path) -> None:
    """A sweep that has ended cannot be stopped, which the last tool says."""
    file = tmp_path / "agent.yaml"
    file.write_text(FILE)
    (tmp_path / "train.py").write_text(TRAINING)
    service = commands.start("serve")
    wait_for(lambda: (commands.root / "serve.json").exists())
    words = ["-m", "orchestrator.sweep", "mcp", "--root", str(commands.root)]
    own = {"SWEEP_DATA": str(commands.shared / "data"), "SWEEP_TEST_MARK": commands.mark}
    connection = StdioServerParameters(
        command=sys.executable, args=words, cwd=commands.project, env={**os.environ, **own}
    )
    transcript: list[str] = []
    try:
        answers = asyncio.run(search(connection, {"file": str(file)}, transcript))
    finally:
        service.terminate()
        (tmp_path / "transcript.txt").write_text("\n".join(transcript))
    assert finish(service)[0] == Exit.COMPLETE
    check(answers)


def test_an_agent_runs_a_search_over_http(commands: Commands, tmp_path: Path) -> None:
    """It has an address and a token, and no file of the machine of the service."""
    code, printed = commands.run("user", "add", "agent", "--json")
    assert code == Exit.COMPLETE, printed
    port, token = free_port(), json.loads(printed)["token"]
    service = commands.start("serve", "--http", str(port), "--stop-drivers")
    wait_for(lambda: (commands.root / "serve.json").exists())
    transcript: list[str] = []

    async def searched() -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=120.0) as client:
            connection = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=client)
            return await search(connection, {"name": "small", "text": NETWORK}, transcript)

    try:
        answers = asyncio.run(searched())
    finally:
        service.terminate()
        service.wait(60)
        (tmp_path / "transcript.txt").write_text("\n".join(transcript))
    check(answers)


def check(answers: Mapping[str, Any]) -> None:
    """Check the answers of a search of two trials."""
    assert answers["status"]["state"] == "COMPLETE"
    assert [trial["state"] for trial in answers["trials"]["result"]] == ["COMPLETE", "COMPLETE"]
    assert answers["curves"]
    assert answers["compare"]
    assert answers["stop"]["error"] == "WrongState"
