"""Every route, with every role and without a token: what is permitted, and who is refused how."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from orchestrator.api import users
from orchestrator.web import page
from orchestrator.web.access import ACCESS, CHANGE_HEADER, COOKIE, Level
from orchestrator.web.site import BAD_TOKENS_A_MINUTE
from tests import sweeps
from tests.orchestrator.web.routes import ROUTES
from tests.orchestrator.web.server import Client

ALLOWED: dict[Level, set[str | None]] = {
    "open": {None, "vera", "bob", "ada", "grace"},
    "viewer": {"vera", "bob", "ada", "grace"},
    "member": {"bob", "ada", "grace"},
    "owner": {"ada", "grace"},
    "admin": {"grace"},
}
"""Users that each level permits; None is a request without a token. The sweep is Ada's."""

REFUSED = {401, 403}


def test_every_route_is_in_the_table() -> None:
    assert {route.name for route in ROUTES} == ACCESS.keys()
    assert len(ROUTES) == len(ACCESS), "each has a name of its own"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_route_admits_whom_the_table_names(reader: Client, route: APIRoute) -> None:
    """A request that passes has an empty body or an unknown target, so that nothing changes."""
    path = route.path if route in page.ROUTER.routes else f"/api/v1{route.path}"
    path = path.format(sweep_id=sweeps.SWEEP_ID, number=0, name="nobody", owner="nobody")
    [method] = route.methods
    for user in (None, "vera", "bob", "ada", "grace"):
        answer = reader.send(method, path, user, content=None if method == "GET" else b"[]")
        if user in ALLOWED[ACCESS[route.name]]:
            assert answer.status not in REFUSED or route.name in {"sign_in", "sign_out"}, (user, answer.body)
        else:
            assert answer.status == (401 if user is None else 403), (user, answer.body)
            assert set(answer.document) >= {"where", "must", "got", "remedy", "status", "title", "detail"}
            assert answer.headers["content-type"] == "application/problem+json"


def test_an_unknown_sweep_is_not_found(reader: Client) -> None:
    answer = reader.send("GET", "/api/v1/sweeps/nothing", "vera")
    assert answer.status == 404
    assert answer.document["got"] == "'nothing'"


def test_wrong_tokens_are_limited_and_right_ones_are_not(client: Client) -> None:
    wrong = {"Authorization": "Bearer wrong"}
    codes = [client.send("GET", "/api/v1/me", headers=wrong).status for _ in range(BAD_TOKENS_A_MINUTE + 1)]
    assert codes == [401] * BAD_TOKENS_A_MINUTE + [429]
    assert client.get("/me")["name"] == "vera"


def test_a_revoked_token_is_refused(client: Client) -> None:
    assert client.send("DELETE", "/api/v1/users/vera", "grace").status == 200
    assert client.send("GET", "/api/v1/me", "vera").status == 401
    audit = client.get("/audit", "grace")["audit"]
    assert (audit[0]["actor"], audit[0]["action"], audit[0]["target"]) == ("grace", "user revoke", "vera")


def test_a_browser_exchanges_its_token_for_a_cookie(client: Client) -> None:
    own = {"Origin": client.address, CHANGE_HEADER: "1"}
    answer = client.send("POST", "/api/v1/session", body={"token": client.tokens["ada"]}, headers=own)
    assert answer.status == 200
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    with_cookie = {"Cookie": f"{COOKIE}={client.tokens['ada']}"}
    assert client.send("GET", "/api/v1/me", headers=with_cookie).document["name"] == "ada"
    stop = f"/api/v1/sweeps/{sweeps.SWEEP_ID}/stop"
    assert client.send("POST", stop, headers=with_cookie).status == 403, "no origin"
    foreign = {**with_cookie, "Origin": "https://evil.example", CHANGE_HEADER: "1"}
    assert client.send("POST", stop, headers=foreign).status == 403
    assert client.send("POST", stop, headers={**with_cookie, "Origin": client.address}).status == 403, (
        "header"
    )
    assert client.send("POST", stop, headers={**with_cookie, **own}).status == 409, "it has ended"


def test_a_token_is_in_no_answer_and_no_log(client: Client, tmp_path: Path) -> None:
    client.send("POST", "/api/v1/session", body={"token": client.tokens["ada"], "more": 1})
    added = client.send("POST", "/api/v1/users", "grace", body={"name": "eve", "role": "viewer"})
    assert added.status == 201
    tokens = [added.document["token"], *client.tokens.values()]
    assert users.users(root=client.workspace.paths.root)
    shown = [client.send("GET", f"/api/v1/{path}", "grace").body for path in ("users", "audit", "me")]
    files = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    for token in tokens:
        assert not any(token.encode() in content for content in (*shown, *files))
