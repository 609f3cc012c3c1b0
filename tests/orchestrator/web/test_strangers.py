"""Rows of the table in docs/cluster.md: forbidden requests and the answers of the server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.ledger.tables import SERVICE_USER
from orchestrator.web.access import CHANGE_HEADER, COOKIE
from orchestrator.web.app_state import BAD_TOKENS_A_MINUTE, SUBMISSIONS_A_MINUTE
from orchestrator.web.application import MOST_BYTES
from tests import sweeps
from tests.orchestrator.web.server import FILE, LEARNS, QUEUED, Client

PAGE = Path(__file__).parents[3] / "docs" / "cluster.md"
SWEEP = f"/api/v1/sweeps/{sweeps.SWEEP_ID}"
CODE = """\
trainable: {command: [sh, -c, "echo {rate}"]}
search: {rate: {uniform: [0, 1]}}
objective: {minimize: loss}
sampler: {random: {seed: 0}}
scheduler: none
training: {steps: 10, interval: 5}
budget: {trials: 2}
resources: {cpu: 1}
"""
WRONG = {"Authorization": "Bearer wrong"}


def no_token(client: Client) -> int:
    return client.send("GET", "/api/v1/queue").status


def wrong_token(client: Client) -> int:
    return client.send("GET", "/api/v1/queue", headers=WRONG).status


def many_wrong_tokens(client: Client) -> int:
    codes = [
        client.send("GET", "/api/v1/queue", headers=WRONG).status for _ in range(BAD_TOKENS_A_MINUTE + 1)
    ]
    return codes[-1]


def token_in_the_address(client: Client) -> int:
    return client.send("GET", f"/api/v1/queue?token={client.tokens['grace']}").status


def revoked_token(client: Client) -> int:
    assert client.send("DELETE", "/api/v1/users/bob", "grace").status == 200
    return client.send("GET", "/api/v1/queue", "bob").status


def expired_token(client: Client) -> int:
    with client.workspace.ledger() as ledger, ledger.writer() as connection:
        connection.execute(SERVICE_USER.update().values(expires_at=1.0))
        connection.commit()
    return client.send("GET", "/api/v1/queue", "ada").status


def viewer_submits(client: Client) -> int:
    return client.send("POST", "/api/v1/sweeps", "vera", body={"name": "x", "text": FILE}).status


def viewer_stops(client: Client) -> int:
    return client.send("POST", f"{SWEEP}/stop", "vera").status


def member_stops_anothers(client: Client) -> int:
    return client.send("POST", f"{SWEEP}/stop", "bob").status


def member_extends_anothers(client: Client) -> int:
    return client.send("POST", f"{SWEEP}/extend", "bob", body={"trials": 99}).status


def member_moves_anothers(client: Client) -> int:
    return client.send("PATCH", SWEEP, "bob", body={"priority_class": "idle"}).status


def member_restarts_anothers(client: Client) -> int:
    [status] = {client.send("POST", f"{SWEEP}/{action}", "bob").status for action in ("resume", "retry")}
    return status


def member_sets_a_quota(client: Client) -> int:
    return client.send("PATCH", "/api/v1/quotas/ada", "ada", body={"weight": 100}).status


def member_takes_urgent(client: Client) -> int:
    return client.send("PATCH", SWEEP, "ada", body={"priority_class": "urgent"}).status


def member_adds_a_user(client: Client) -> int:
    return client.send("POST", "/api/v1/users", "ada", body={"name": "eve", "role": "admin"}).status


def member_reads_the_audit_log(client: Client) -> int:
    return client.send("GET", "/api/v1/audit", "ada").status


def forged_host(client: Client) -> int:
    return client.send("GET", "/api/v1/queue", "grace", headers={"Host": "evil.example"}).status


def other_site(client: Client) -> int:
    headers = {"Cookie": f"{COOKIE}={client.tokens['grace']}", "Origin": "https://evil.example"}
    return client.send("POST", f"{SWEEP}/stop", headers={**headers, CHANGE_HEADER: "1"}).status


def form_of_another_site(client: Client) -> int:
    headers = {"Cookie": f"{COOKIE}={client.tokens['grace']}", "Content-Type": "text/plain"}
    return client.send("POST", f"{SWEEP}/stop", content=b"{}", headers=headers).status


def large_body(client: Client) -> int:
    body = {"name": "big", "text": "x" * MOST_BYTES}
    return client.send("POST", "/api/v1/sweeps", "ada", body=body).status


def path_outside(client: Client) -> int:
    return client.send("GET", f"{SWEEP}/artifacts/..%2F..%2Fsweeps.db", "vera").status


def folder_of_the_server(client: Client) -> int:
    body = {"name": "x", "text": FILE, "root": "/tmp"}
    return client.send("POST", "/api/v1/sweeps", "ada", body=body).status


def notices(client: Client) -> int:
    body = {"name": "x", "text": FILE + "notify: http://127.0.0.1/\n"}
    return client.send("POST", "/api/v1/sweeps", "ada", body=body).status


def data_of_a_file(client: Client) -> int:
    body = {"name": "x", "text": FILE.replace("delay: 10", "delay: 10, path: /etc/passwd")}
    return client.send("POST", "/api/v1/sweeps", "ada", body=body).status


def results_of_a_file(client: Client) -> int:
    body = {"name": "x", "text": f"{LEARNS}known: /etc/passwd\n"}
    return client.send("POST", "/api/v1/sweeps", "bob", body=body).status


def results_of_a_database(client: Client) -> int:
    body = {"name": "x", "text": f"{LEARNS}known: optuna://sqlite:////tmp/x.db#study\n"}
    return client.send("POST", "/api/v1/sweeps", "bob", body=body).status


def learns_from(client: Client, sweep_id: str) -> int:
    body = {"name": "x", "text": f"{LEARNS}warm_start: [{sweep_id}]\n"}
    return client.send("POST", "/api/v1/sweeps", "bob", body=body).status


def learns_from_nothing(client: Client) -> int:
    return learns_from(client, "retrieval-laptop-00000000")


def learns_from_anothers(client: Client) -> int:
    return learns_from(client, sweeps.SWEEP_ID)


def code(client: Client) -> int:
    body = {"name": "x", "text": CODE}
    return client.send("POST", "/api/v1/sweeps", "grace", body=body).status


def many_starts(client: Client) -> int:
    """Retries of a queued sweep, because each is refused at once: the allowance fills up with time."""
    path = f"/api/v1/sweeps/{QUEUED}/retry"
    return [client.send("POST", path, "ada").status for _ in range(SUBMISSIONS_A_MINUTE + 1)][-1]


ROWS: dict[str, tuple[Callable[[Client], int], int]] = {
    "no token": (no_token, 401),
    "a wrong token": (wrong_token, 401),
    "the sixth wrong token of an address within a minute": (many_wrong_tokens, 429),
    "a token in the address instead of a header": (token_in_the_address, 401),
    "a revoked token": (revoked_token, 401),
    "an expired token": (expired_token, 401),
    "a viewer submits": (viewer_submits, 403),
    "a viewer stops a sweep": (viewer_stops, 403),
    "a member stops the sweep of another": (member_stops_anothers, 403),
    "a member extends the sweep of another": (member_extends_anothers, 403),
    "a member moves the sweep of another": (member_moves_anothers, 403),
    "a member resumes or retries the sweep of another": (member_restarts_anothers, 403),
    "a member sets a quota": (member_sets_a_quota, 403),
    "a member takes class `urgent`": (member_takes_urgent, 403),
    "a member adds a user": (member_adds_a_user, 403),
    "a member reads the audit log": (member_reads_the_audit_log, 403),
    "a forged `Host`, with the token of an admin": (forged_host, 403),
    "a change from another site, with the cookie of an admin": (other_site, 403),
    "a form of another site, with the cookie of an admin": (form_of_another_site, 403),
    "a body of more than 256,000 bytes": (large_body, 413),
    "a file outside the folder of a report": (path_outside, 404),
    "the eleventh submission, extension or retry of a user within a minute": (many_starts, 429),
    "a submission with a command, a function or a program of its own (`trainable`)": (code, 403),
    "a submission that sets the folder of the service": (folder_of_the_server, 422),
    "a submission that sets an address for notices": (notices, 422),
    "a submission that names a file for the data of its task": (data_of_a_file, 422),
    "a submission that names a file for known results": (results_of_a_file, 422),
    "a submission that names a database for known results": (results_of_a_database, 422),
    "a submission that learns from a sweep that does not exist": (learns_from_nothing, 422),
    "a submission that learns from the sweep of another, which every user may read": (
        learns_from_anothers,
        202,
    ),
}


def test_the_page_has_these_rows_and_no_others() -> None:
    _, _, table = PAGE.read_text().partition("| request to the service | answer |\n| --- | --- |\n")
    rows = table.partition("\n\n")[0].splitlines()
    assert rows == [f"| {request} | {answer} |" for request, (_, answer) in ROWS.items()]


@pytest.mark.slow  # each row has a server of its own; test_access.py covers every route in every run
@pytest.mark.parametrize("request_name", ROWS)
def test_a_stranger_is_refused(client: Client, request_name: str) -> None:
    send, answer = ROWS[request_name]
    assert send(client) == answer
