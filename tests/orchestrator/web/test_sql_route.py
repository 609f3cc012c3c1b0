"""SQL over HTTP and as a tool: for admins, within the limits of a file check, and never a secret."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from urllib.parse import quote

import pytest

from orchestrator.ledger.connect import database_file, parse
from orchestrator.ledger.people.users import digest
from orchestrator.web.app_state import AppState
from orchestrator.web.limited_process import CheckLimits
from orchestrator.web.server import Listening, answering
from tests import sweeps
from tests.orchestrator.web.server import Client
from tests.orchestrator.web.test_agent_route import called

HEAVY = {"sqlalchemy", "psutil", "jax", "numpy", "pydantic", "fastapi", "yaml", "ruamel", "asyncio"}
OWN = {
    "orchestrator.errors",
    "orchestrator.ledger",
    "orchestrator.ledger.sql",
    "orchestrator.process_secrets",
    "orchestrator.web",
    "trainables.errors",
}
SECRETS = ("service_user", "service_session", "request_key")


def test_an_admin_reads_the_views(reader: Client) -> None:
    answer = reader.get(f"/sql?query={quote('SELECT key FROM trials ORDER BY number')}&rows=2", "grace")
    assert answer == {
        "columns": ["key"],
        "rows": [[f"{sweeps.SWEEP_ID}-{number}"] for number in (0, 1)],
        "truncated": True,
    }


@pytest.mark.parametrize("user", ["vera", "ada"])
def test_a_tool_reads_the_views_for_an_admin_only(reader: Client, user: str) -> None:
    query = {"query": "SELECT count(*) AS trials FROM trials"}
    [refused] = called(reader, user, ("sql", query))
    assert refused.is_error
    assert refused.structured_content is not None
    assert refused.structured_content["error"] == "NotAllowed"
    [answer] = called(reader, "grace", ("sql", query))
    assert answer.structured_content == {"columns": ["trials"], "rows": [[8]], "truncated": False}


@pytest.mark.parametrize("table", SECRETS)
def test_no_secret_is_read(reader: Client, table: str) -> None:
    answer = reader.send("GET", f"/api/v1/sql?query={quote(f'SELECT * FROM {table}')}", "grace")
    assert answer.status == 422
    assert answer.document["error"] == "BadInput"
    assert digest(reader.tokens["ada"]).encode() not in answer.body


def test_the_process_of_a_query_imports_little(client: Client) -> None:
    """Several queries a second must leave the processor to other users."""
    file = str(database_file(parse(client.workspace.paths.ledger_url)))
    given = {"sql": "SELECT count(*) AS trials FROM trials", "rows": 1, "file": file}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "orchestrator.web.limited_process"],
        input=json.dumps({**given, "limits": asdict(CheckLimits())}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["answer"]["rows"] == [[8]]
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "sqlite3" in imported
    assert not {name.partition(".")[0] for name in imported} & HEAVY
    own = {name for name in imported if name.startswith(("orchestrator.", "trainables."))}
    assert own <= OWN, "see what it imports, and whether a query needs it"


@pytest.mark.slow
def test_a_query_without_memory_or_time_ends(client: Client) -> None:
    """The process of the query ends, and the service answers the next one."""
    state = AppState(client.workspace, check_limits=CheckLimits(cpu_seconds=2, memory_bytes=300 * 1024**2))
    bombs = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
        "WITH RECURSIVE n(i, t) AS (SELECT 1, printf('%9000000d', 1) UNION ALL"
        " SELECT i + 1, printf('%9000000d', i) FROM n) SELECT i FROM n ORDER BY t",
    )
    with answering(state, Listening(0)) as address:
        other = Client(address, client.workspace, client.tokens)
        for bomb in bombs:
            answer = other.send("GET", f"/api/v1/sql?query={quote(bomb)}", "grace")
            assert answer.status == 422, answer.body
            assert "must take at most 2 s of processor time" in answer.document["detail"]
        assert other.get(f"/sql?query={quote('SELECT 1 AS one')}", "grace")["rows"] == [[1]]
