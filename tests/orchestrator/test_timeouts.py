"""The table of timeouts in docs/fault-tolerance.md says what the code sets, and leaves no connection out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.client import http
from orchestrator.data import fetching
from orchestrator.driver import notice_targets, shutdown
from orchestrator.ledger import connect, lease_backends
from orchestrator.ledger.sweeps import lease
from orchestrator.machines import keeper
from orchestrator.schedule import resources
from orchestrator.storage import store
from orchestrator.tracking import address
from orchestrator.tracking.shipper import Timeouts
from orchestrator.web import feeds, identity_provider, server

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "fault-tolerance.md").read_text(encoding="utf-8")
ROWS = {
    connection: limits
    for connection, limits, _ in re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| ([^|]*) ?\|$", PAGE.split("## Timeouts")[1], flags=re.MULTILINE
    )
}

SOCKET, SERVER, S3 = connect.SOCKET_OPTIONS, connect.SERVER_TIMEOUTS, store.TIMEOUTS["s3"]["config_kwargs"]
TIMES = {1: "once", 2: "twice", 3: "three times"}


def _server(name: str) -> str:
    return f"{SERVER[name].removesuffix('s')} s"


EXPECTED = {
    "PostgreSQL, socket": (
        f"connect {SOCKET['connect_timeout']} s; "
        f"unacknowledged data {SOCKET['tcp_user_timeout'] // 1000} s (`tcp_user_timeout`); "
        f"keepalive after {SOCKET['keepalives_idle']} s, {TIMES[SOCKET['keepalives_count']]}, "
        f"{SOCKET['keepalives_interval']} s apart"
    ),
    "PostgreSQL, server": (
        f"statement {_server('statement_timeout')}, lock {_server('lock_timeout')}, "
        f"idle in a transaction {_server('idle_in_transaction_session_timeout')}"
    ),
    "PostgreSQL, retries": (
        f"a driver: without limit, {connect.FIRST_RETRY_SECONDS:g} to "
        f"{connect.LONGEST_RETRY_SECONDS:g} s apart; other commands: {connect.RECONNECT_SECONDS:g} s"
    ),
    "SQLite": f"a lock: {connect.BUSY_TRIES} x {connect.BUSY_SECONDS:g} s",
    "the lease": f"renewed every second, expires after {lease_backends.LIFE_SECONDS:g} s",
    "S3": f"connect {S3['connect_timeout']} s, read {S3['read_timeout']} s, up to three retries",
    "Google Cloud Storage": f"{store.TIMEOUTS['gs']['timeout']} s per request",
    "other stores": "those of their `fsspec` client",
    "MLflow over HTTP": (
        f"{address.SETTINGS['MLFLOW_HTTP_REQUEST_TIMEOUT']} s per request, no retries within a request"
    ),
    "MLflow's delivery process": (
        f"a response, or a sign that a batch makes progress, {Timeouts.silence:g} s; its start "
        f"{Timeouts.awake:g} s; after a timeout it is replaced, "
        f"{Timeouts.first_retry:g} to {Timeouts.longest_retry:g} s apart, also one that drivers share"
    ),
    "downloads of data sets": f"{fetching.TIMEOUT_SECONDS} s",
    "Ray's head, when a driver joins": (
        f"{resources.CONNECT_SECONDS:g} s to connect; "
        f"{keeper.START_SECONDS:g} s for one start of the Ray of this machine"
    ),
    "the HTTP service": (
        f"an idle connection {server.IDLE_SECONDS} s, a keep-alive comment in an event stream every "
        f"{feeds.PING_SECONDS:g} s, open requests at its end {server.GRACE_SECONDS} s"
    ),
    "requests to the HTTP service": f"an answer {http.TIMEOUT_SECONDS:g} s",
    "the provider of single sign-on": f"{identity_provider.PATIENCE_SECONDS:g} s per request, no retries",
    "`--notify`": f"{notice_targets.TIMEOUT_SECONDS:g} s per message",
    "the exit of a driver": (
        f"{shutdown.GRACE_SECONDS:g} s to leave, then {shutdown.LAST_SECONDS:g} s for the ledger "
        f"and the child processes, and {shutdown.LAST_SECONDS:g} s for the last line of output"
    ),
}


@pytest.mark.parametrize("connection", EXPECTED)
def test_the_table_of_timeouts_says_what_the_code_sets(connection: str) -> None:
    assert ROWS[connection] == EXPECTED[connection]


def test_each_row_of_the_table_is_checked() -> None:
    assert set(ROWS) - {"connection", "---"} == set(EXPECTED)
    assert lease.RENEW_SECONDS == 1.0
    assert S3["retries"] == {"max_attempts": 3}
    assert address.SETTINGS["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "0"
