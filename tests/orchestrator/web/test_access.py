"""Permissions of every route for every role, and without a token."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from sqlalchemy import select

from orchestrator.api import user_admin
from orchestrator.api.workspace import Workspace
from orchestrator.driver.admission import OWNER
from orchestrator.ledger.people import users as ledger_users
from orchestrator.ledger.people.users import MOST_SESSIONS, digest
from orchestrator.ledger.tables import SERVICE_SESSION
from orchestrator.web.access import ACCESS, CHANGE_HEADER, COOKIE, Level
from orchestrator.web.app_state import BAD_TOKENS_A_MINUTE, KEY_SECONDS, OneTimeKey
from orchestrator.web.read_cache import FRESH_SECONDS
from orchestrator.web.server import Listening, serving
from tests import sweeps
from tests.orchestrator.web.routes import ROUTES, path_of
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
    """A request that passes has an empty body, an unknown target or a wrong parameter, and changes nothing.

    The wrong number of draws keeps each replay from starting a process that imports for seconds.
    """
    path = path_of(route).format(sweep_id=sweeps.SWEEP_ID, number=0, name="nobody", owner="nobody")
    if route.name == "replay":
        path += "?draws=none"
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
    with_cookie = {"Cookie": cookie.partition(";")[0]}
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
    assert user_admin.users(root=client.workspace.paths.root)
    shown = [client.send("GET", f"/api/v1/{path}", "grace").body for path in ("users", "audit", "me")]
    files = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    for token in tokens:
        assert not any(token.encode() in content for content in (*shown, *files))


def _signed_in(client: Client, token: str) -> dict[str, str]:
    """Sign a browser in; return the header with its cookie."""
    own = {"Origin": client.address, CHANGE_HEADER: "1"}
    answer = client.send("POST", "/api/v1/session", body={"token": token}, headers=own)
    assert answer.status == 200, answer.body
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


def _reads(client: Client, cookie: dict[str, str]) -> int:
    return client.send("GET", "/api/v1/me", headers=cookie).status


def test_the_cookie_is_not_the_token_and_is_stored_as_a_digest(client: Client) -> None:
    first, second = (_signed_in(client, client.tokens["ada"])["Cookie"] for _ in range(2))
    assert first != second
    assert client.tokens["ada"] not in first
    assert _reads(client, {"Cookie": f"{COOKIE}={client.tokens['ada']}"}) == 401
    session = first.removeprefix(f"{COOKIE}=")
    assert client.send("GET", "/api/v1/me", headers={"Authorization": f"Bearer {session}"}).status == 401
    with client.workspace.ledger() as ledger, ledger.reader() as connection:
        stored = str(connection.execute(select(SERVICE_SESSION)).all())
    assert digest(session) in stored
    assert session not in stored


def test_a_session_ends_when_the_browser_signs_out(client: Client) -> None:
    here, elsewhere = (_signed_in(client, client.tokens["ada"]) for _ in range(2))
    own = {"Origin": client.address, CHANGE_HEADER: "1"}
    assert client.send("DELETE", "/api/v1/session", headers={**here, **own}).status == 200
    assert (_reads(client, here), _reads(client, elsewhere)) == (401, 200)


def test_a_session_ends_with_its_token(client: Client) -> None:
    cookie = _signed_in(client, client.tokens["ada"])
    assert client.send("DELETE", "/api/v1/users/ada", "grace").status == 200
    assert _reads(client, cookie) == 401
    assert client.send("POST", "/api/v1/users", "grace", body={"name": "ada"}).status == 201
    assert _reads(client, cookie) == 401, "a new token is not the old one"


def test_a_session_expires(client: Client) -> None:
    cookie = _signed_in(client, client.tokens["ada"])
    with client.workspace.ledger() as ledger, ledger.writer() as connection:
        connection.execute(SERVICE_SESSION.update().values(expires_at=time.time() - 1.0))
        connection.commit()
    time.sleep(FRESH_SECONDS)
    assert _reads(client, cookie) == 401
    _signed_in(client, client.tokens["ada"])
    with client.workspace.ledger() as ledger:
        assert len(ledger_users.sessions(ledger)) == 1, "those that have expired are deleted"


def test_a_token_has_a_limited_number_of_sessions(client: Client) -> None:
    first = _signed_in(client, client.tokens["ada"])
    others = [_signed_in(client, client.tokens["ada"]) for _ in range(MOST_SESSIONS)]
    assert (_reads(client, first), _reads(client, others[-1])) == (401, 200)


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[tuple[Client, OneTimeKey]]:
    """Serve an empty ledger with a sign-in key for an unknown user."""
    key, workspace = OneTimeKey("root"), Workspace.at(tmp_path / "mlruns")
    with serving(workspace, Listening(0), key=key) as address:
        yield Client(address, workspace, {}), key


def test_the_key_of_the_service_signs_its_account_in_once(keyed: tuple[Client, OneTimeKey]) -> None:
    client, key = keyed
    assert user_admin.signed_in_by_link(client.workspace.paths.root) is not None
    cookie = _signed_in(client, key.text)
    assert client.send("GET", "/api/v1/users", headers=cookie).document["users"][0]["role"] == "admin"
    own = {"Origin": client.address, CHANGE_HEADER: "1"}
    assert client.send("POST", "/api/v1/session", body={"token": key.text}, headers=own).status == 401
    assert client.send("GET", "/api/v1/me", headers={"Authorization": f"Bearer {key.text}"}).status == 401


def test_the_key_of_the_service_gives_a_user_no_other_role(tmp_path: Path) -> None:
    workspace, key = Workspace.at(tmp_path / "mlruns"), OneTimeKey("ada")
    user_admin.add("ada", "viewer", root=workspace.paths.root)
    with serving(workspace, Listening(0), key=key) as address:
        client = Client(address, workspace, {})
        assert (
            client.send("GET", "/api/v1/me", headers=_signed_in(client, key.text)).document["role"]
            == "viewer"
        )


def test_a_key_is_taken_once_and_in_time() -> None:
    now = [0.0]
    key, late = (OneTimeKey("ada", lambda: now[0]) for _ in range(2))
    assert not key.take("")
    assert not key.take(late.text)
    assert key.take(key.text)
    assert not key.take(key.text)
    now[0] = KEY_SECONDS + 1.0
    assert not late.take(late.text)


def test_an_account_whose_token_was_revoked_gets_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "mlruns"
    monkeypatch.setenv(OWNER, "ada")
    user_admin.add("ada", root=root)
    assert user_admin.signed_in_by_link(root) == "ada"
    user_admin.revoke("ada", root=root)
    assert user_admin.signed_in_by_link(root) is None
    monkeypatch.setenv(OWNER, "No User's Name")
    assert user_admin.signed_in_by_link(root) is None
