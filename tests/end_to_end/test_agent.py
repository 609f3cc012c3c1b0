"""An agent runs a whole search on a real Ray, by the tools that `sweep mcp` serves."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import mcp
import pytest
from mcp import StdioServerParameters

from orchestrator.errors import Exit
from tests.end_to_end.commands import Commands, finish, wait_for
from tests.end_to_end.test_http_sweeps import FILE, TRAINING

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

PATIENCE = 240.0
"""Seconds until a sweep of two trials must have ended."""


async def search(connection: StdioServerParameters, file: Path, transcript: list[str]) -> dict[str, Any]:
    """Run the search of a file to its end; return the answer of each tool, by the name of the tool."""
    answers: dict[str, Any] = {}

    async with mcp.Client(connection) as agent:

        async def ask(tool: str, **arguments: Any) -> Any:
            result = await agent.call_tool(tool, arguments)
            answers[tool] = result.structured_content
            shown = json.dumps(result.structured_content)
            transcript.append(f"{tool} {json.dumps(arguments)}\n  -> {shown[:200]}")
            return result.structured_content

        await ask("validate", file=str(file))
        submitted = await ask("submit", file=str(file), key="monday")
        async with asyncio.timeout(PATIENCE):
            while (await ask("status", sweep=submitted["id"]))["state"] not in {"COMPLETE", "FAILED"}:
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
        answers = asyncio.run(search(connection, file, transcript))
    finally:
        service.terminate()
        (tmp_path / "transcript.txt").write_text("\n".join(transcript))
    assert finish(service)[0] == Exit.COMPLETE
    assert answers["status"]["state"] == "COMPLETE"
    assert [trial["state"] for trial in answers["trials"]["result"]] == ["COMPLETE", "COMPLETE"]
    assert answers["curves"]
    assert answers["compare"]
    assert answers["stop"]["error"] == "WrongState"
