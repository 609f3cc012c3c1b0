"""Single sign-on: with a real provider, and with an issuer that answers what no proper provider does."""

from __future__ import annotations

import html
import http.client
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from joserfc.jwk import KeySet, RSAKey

from orchestrator.api import user_admin
from orchestrator.api.workspace import Workspace
from orchestrator.cli.serve import OIDC_SECRET, _identity_provider
from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people import users
from orchestrator.ledger.tables import SERVICE_USER
from orchestrator.process_secrets import of_trials
from orchestrator.upkeep import recovery
from orchestrator.web.access import CHANGE_HEADER, COOKIE
from orchestrator.web.app_state import SIGN_ONS_A_MINUTE
from orchestrator.web.identity_provider import (
    SIGN_ON_SECONDS,
    IdentityProvider,
    SignOnFile,
    check_hosts,
    read_settings,
)
from orchestrator.web.server import Listening, serving
from tests.orchestrator.web.issuer import Issuer, free_port, issuing, real_provider
from tests.orchestrator.web.server import Answer, Client

ROLES = {"viewer": ["all"], "member": ["lab"], "admin": ["admins"]}
PERSON = {"sub": "1", "preferred_username": "ada", "groups": ["all", "lab"]}


def cookies(answer: Answer, name: str) -> str:
    [found] = re.findall(rf"{name}=([^;,\"]+)", answer.headers.get("set-cookie", ""))
    return str(found)


@dataclass(frozen=True)
class Browser:
    """Signs persons on.

    Attributes:
        client: Client of the server.
        clock: Seconds of the provider's clock in the server.
    """

    client: Client
    clock: list[float]

    def begin(self) -> tuple[str, dict[str, str]]:
        """Return the address at the provider, and the cookie."""
        answer = self.client.send("GET", "/sign-on", headers={"Accept": "text/html"})
        assert answer.status == 303, answer.body
        assert "HttpOnly" in answer.headers["set-cookie"]
        return answer.headers["location"], {"Cookie": f"sweep_sign_on={cookies(answer, 'sweep_sign_on')}"}

    def finish(self, cookie: Mapping[str, str], **parameters: str) -> Answer:
        return self.client.send("GET", f"/sign-on/callback?{urlencode(parameters)}", headers=cookie)

    def sign_on(self, issuer: Issuer, **claims: Any) -> Answer:
        address, cookie = self.begin()
        return self.finish(cookie, state=state_of(address), code=issuer.approve(address, **claims))

    def me(self, answer: Answer) -> Any:
        """Return the user of the session that an answer has opened."""
        cookie = {"Cookie": f"{COOKIE}={cookies(answer, COOKIE)}"}
        return self.client.send("GET", "/api/v1/me", headers=cookie).document


def state_of(address: str) -> str:
    return parse_qs(urlsplit(address).query)["state"][0]


@contextmanager
def served(root: Path, settings: SignOnFile) -> Iterator[Browser]:
    clock = [0.0]
    with served_with(root, IdentityProvider(settings, clock=lambda: clock[0])) as client:
        yield Browser(client, clock)


@contextmanager
def served_with(root: Path, provider: IdentityProvider) -> Iterator[Client]:
    workspace = Workspace.at(root)
    tokens = {"grace": user_admin.add("grace", "admin", root=root)[1]}
    listening = Listening(urlsplit(provider.settings.address).port or 0)
    with serving(workspace, listening, provider=provider) as address:
        yield Client(address, workspace, tokens)


def settings_of(issuer: str, **changes: Any) -> SignOnFile:
    own = {"issuer": issuer, "client_id": "sweeps", "address": f"http://127.0.0.1:{free_port()}"}
    return SignOnFile.model_validate({**own, "roles": ROLES, **changes})


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as issuer:
        yield issuer


@pytest.fixture
def browser(tmp_path: Path, issuer: Issuer) -> Iterator[Browser]:
    with served(tmp_path / "mlruns", settings_of(issuer.address)) as browser:
        yield browser


def ask(address: str, method: str, path: str, body: str, kind: str) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    connection.request(method, path, body, {"Content-Type": kind})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def test_a_person_signs_on_at_a_real_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flow of a browser, the API with a token of the page, and the end of both sessions."""
    with real_provider(PERSON) as (issuer, process):
        own_address = f"http://127.0.0.1:{free_port()}"
        asked = json.dumps({"redirect_uris": [f"{own_address}/sign-on/callback"]})
        registered = json.loads(ask(issuer, "POST", "/oauth2/clients", asked, "application/json")[1])
        file = tmp_path / "sign_on.yaml"
        named = {"issuer": issuer, "client_id": registered["client_id"], "address": own_address}
        file.write_text(json.dumps({**named, "roles": ROLES}))
        monkeypatch.setenv(OIDC_SECRET, registered["client_secret"])
        assert OIDC_SECRET not in of_trials(os.environ)
        with served_with(tmp_path / "mlruns", _identity_provider(file, Listening(0))) as client:
            browser = Browser(client, [])
            page = browser.client.send("GET", "/sign-in", headers={"Accept": "text/html"}).body
            assert b'href="/sign-on"' in page
            address, cookie = browser.begin()
            parts = urlsplit(address)
            agreed, _ = ask(
                issuer, "POST", f"{parts.path}?{parts.query}", "sub=1", "application/x-www-form-urlencoded"
            )
            back = urlsplit(html.unescape(agreed.headers["Location"]))
            answer = browser.client.send("GET", f"{back.path}?{back.query}", headers=cookie)
            assert (answer.status, answer.headers["location"]) == (303, "/sign-in?signed-on"), answer.body
            assert "samesite=strict" in answer.headers["set-cookie"].lower()
            user = browser.me(answer)
            assert (user["name"], user["role"], user["subject"]) == ("ada", "member", f"{issuer} 1")
            assert user["expires_at"] - time.time() == pytest.approx(7 * 86_400.0, abs=60.0)

            session = {"Cookie": f"{COOKIE}={cookies(answer, COOKIE)}"}
            own = {**session, "Origin": browser.client.address, CHANGE_HEADER: "1"}
            assert browser.client.send("POST", "/api/v1/me/token", headers=session).status == 403, "no origin"
            token = browser.client.send("POST", "/api/v1/me/token", headers=own).document["token"]
            bearer = {"Authorization": f"Bearer {token}"}
            assert browser.client.send("GET", "/api/v1/me", headers=bearer).document["name"] == "ada"
            assert browser.client.send("GET", "/api/v1/me", headers=session).status == 200, "it goes on"

            out = browser.client.send("DELETE", "/api/v1/session", headers=own).document
            assert out["provider"].startswith(f"{issuer}/oauth2/end_session?client_id=")
            assert browser.client.send("GET", "/api/v1/me", headers=session).status == 401

            address, cookie = browser.begin()
            process.kill()
            process.wait()
            late = browser.finish(cookie, state=state_of(address), code="x")
            assert (late.status, late.document["where"]) == (503, issuer), "the provider is down"
            files = [path.read_bytes() for path in (tmp_path / "mlruns").rglob("*") if path.is_file()]
            assert not any(registered["client_secret"].encode() in content for content in files)


def test_without_an_answer_of_the_provider_a_token_still_signs_in(tmp_path: Path) -> None:
    with served(tmp_path / "mlruns", settings_of(f"http://127.0.0.1:{free_port()}")) as browser:
        answer = browser.client.send("GET", "/sign-on")
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        own = {"Origin": browser.client.address, CHANGE_HEADER: "1"}
        body = {"token": browser.client.tokens["grace"]}
        assert browser.client.send("POST", "/api/v1/session", body=body, headers=own).status == 200


def test_a_code_is_exchanged_with_its_verifier(browser: Browser, issuer: Issuer) -> None:
    """The issuer refuses a code without the verifier of its challenge (PKCE)."""
    assert browser.me(browser.sign_on(issuer, **PERSON))["name"] == "ada"
    stolen = issuer.approve(browser.begin()[0], **PERSON)
    address, cookie = browser.begin()
    answer = browser.finish(cookie, state=state_of(address), code=stolen)
    assert (answer.status, answer.document["got"]) == (401, "invalid_grant")


def test_a_state_works_once_in_its_browser_and_in_time(browser: Browser, issuer: Issuer) -> None:
    address, cookie = browser.begin()
    code = issuer.approve(address, **PERSON)
    other, other_cookie = browser.begin()
    refused = [
        browser.finish({}, state=state_of(address), code=code),
        browser.finish(other_cookie, state=state_of(address), code=code),
        browser.finish(cookie, state=state_of(other), code=code),
        browser.finish(cookie, code=code),
    ]
    assert [answer.status for answer in refused] == [401] * 4
    assert browser.finish(cookie, state=state_of(address), code=code).status == 303
    replayed = browser.finish(cookie, state=state_of(address), code=issuer.approve(address, **PERSON))
    assert (replayed.status, replayed.document["where"]) == (401, "state")
    browser.clock[0] += SIGN_ON_SECONDS + 1.0
    late = browser.finish(other_cookie, state=state_of(other), code=issuer.approve(other, **PERSON))
    assert (late.status, late.document["where"]) == (401, "state")


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"nonce": "another"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"aud": "another"}, "aud"),
        ({"aud": ["sweeps", "another"]}, "azp"),
        ({"azp": "another"}, "azp"),
        ({"iss": "https://evil.example"}, "iss"),
        ({"exp": 1_000}, "expired"),
        ({"exp": None}, "exp"),
        ({"iat": 4_000_000_000}, "future"),
        ({"sub": None}, "sub"),
    ],
)
def test_an_id_token_for_another_sign_on_is_refused(
    browser: Browser, issuer: Issuer, changes: Mapping[str, Any], match: str
) -> None:
    issuer.changed = lambda claims: {
        name: value for name, value in {**claims, **changes}.items() if value is not None
    }
    answer = browser.sign_on(issuer, **PERSON)
    assert (answer.status, answer.document["where"]) == (401, "ID token")
    assert match in answer.document["got"]
    assert COOKIE not in answer.headers.get("set-cookie", "")


def test_an_unsigned_or_self_signed_id_token_is_refused(browser: Browser, issuer: Issuer) -> None:
    """Neither `alg: none`, nor a MAC with the public key, nor another key with the name of the right one."""
    right = issuer.key
    issuer.algorithm = "none"
    unsigned = browser.sign_on(issuer, **PERSON)
    issuer.algorithm = "HS256"
    confused = browser.sign_on(issuer, **PERSON)
    issuer.algorithm, issuer.published = "RS256", KeySet([right])
    issuer.key = RSAKey.generate_key(2048, {"kid": right.kid})
    forged = browser.sign_on(issuer, **PERSON)
    for answer in (unsigned, confused, forged):
        assert (answer.status, answer.document["where"]) == (401, "ID token"), answer.body
    issuer.key = right
    assert browser.sign_on(issuer, **PERSON).status == 303


def test_the_provider_may_change_its_keys(browser: Browser, issuer: Issuer) -> None:
    assert browser.sign_on(issuer, **PERSON).status == 303
    old = issuer.key
    issuer.key = RSAKey.generate_key(2048, auto_kid=True)
    assert browser.sign_on(issuer, **PERSON).status == 303
    issuer.published, issuer.key = KeySet([issuer.key]), old
    assert browser.sign_on(issuer, **PERSON).status == 401, "a withdrawn key"


def test_no_request_chooses_where_the_browser_goes(browser: Browser, issuer: Issuer) -> None:
    """Only the settings name the address of the callback, and only this server the page after it."""
    evil = "https://evil.example/"
    parameters = urlencode(dict.fromkeys(("next", "redirect_uri", "return_to", "url"), evil))
    forwarded = {"X-Forwarded-Host": "evil.example", "Referer": evil}
    begun = browser.client.send("GET", f"/sign-on?{parameters}", headers=forwarded)
    assert begun.headers["location"].startswith(f"{issuer.address}/authorize?")
    assert "evil" not in begun.headers["location"]
    address, cookie = browser.begin()
    given = {"state": state_of(address), "code": issuer.approve(address, **PERSON)}
    finished = browser.finish(cookie, **given, next=evil, redirect_uri=evil)
    assert finished.headers["location"] == "/sign-in?signed-on"


def test_groups_decide_the_role_at_each_sign_on(browser: Browser, issuer: Issuer) -> None:
    first = browser.sign_on(issuer, **PERSON)
    assert browser.me(first)["role"] == "member"
    browser.sign_on(issuer, **{**PERSON, "groups": ["lab", "admins"]})
    assert browser.me(first)["role"] == "admin", "in all sessions"
    browser.sign_on(issuer, **{**PERSON, "groups": "all"})
    assert browser.me(first)["role"] == "viewer"
    refused = browser.sign_on(issuer, **{**PERSON, "groups": ["others"]})
    assert (refused.status, refused.document["error"]) == (403, "NotAllowed")
    assert browser.me(first)["status"] == 401, "access ends with the role"
    renewed = browser.sign_on(issuer, **PERSON)
    assert browser.me(renewed)["role"] == "member"
    assert browser.me(first)["status"] == 401, "an ended session stays ended"


def test_a_name_belongs_to_one_account(browser: Browser, issuer: Issuer) -> None:
    local = browser.sign_on(issuer, sub="9", preferred_username="grace", groups=["admins"])
    assert (local.status, local.document["where"]) == (403, "user grace")
    assert browser.sign_on(issuer, **PERSON).status == 303
    assert browser.sign_on(issuer, **{**PERSON, "sub": "2"}).status == 403, "another person of that name"
    renamed = browser.sign_on(issuer, **{**PERSON, "preferred_username": "countess"})
    assert browser.me(renamed)["name"] == "ada", "which owns the sweeps"
    for name in ("Ada Lovelace", "../ada", "", 5, None):
        assert browser.sign_on(issuer, sub="3", preferred_username=name, groups=["lab"]).status in {401, 422}


@pytest.mark.slow
def test_a_revoked_user_does_not_sign_on_again(browser: Browser, issuer: Issuer) -> None:
    first = browser.sign_on(issuer, **PERSON)
    assert browser.client.send("DELETE", "/api/v1/users/ada", "grace").status == 200
    assert browser.me(first)["status"] == 401
    assert browser.sign_on(issuer, **PERSON).status == 403
    added = browser.client.send("POST", "/api/v1/users", "grace", body={"name": "ada"})
    assert added.document["subject"] == f"{issuer.address} 1", "an admin gives access again"
    assert browser.me(browser.sign_on(issuer, **PERSON))["name"] == "ada"
    actions = [entry["action"] for entry in browser.client.get("/audit", "grace")["audit"]]
    assert actions[:4] == ["sign on", "user add", "user revoke", "sign on"]


def test_a_local_account_gets_no_token_by_itself(browser: Browser) -> None:
    answer = browser.client.send("POST", "/api/v1/me/token", "grace")
    assert (answer.status, answer.document["error"]) == (409, "WrongState")


def test_a_refusal_of_the_provider_is_shown_without_its_text(browser: Browser) -> None:
    for error, shown in (("access_denied", "access_denied"), ("<b>call 555</b>", "no authorization code")):
        address, cookie = browser.begin()
        answer = browser.finish(cookie, state=state_of(address), error=error, error_description="call 555")
        assert (answer.status, answer.document["got"]) == (401, shown)
        assert b"555" not in answer.body


def test_sign_ons_of_an_address_are_limited(browser: Browser) -> None:
    """On a busy machine a few more are permitted meanwhile."""
    statuses = [browser.client.send("GET", "/sign-on").status for _ in range(2 * SIGN_ONS_A_MINUTE)]
    assert statuses[:SIGN_ONS_A_MINUTE] == [303] * SIGN_ONS_A_MINUTE
    assert 429 in statuses


def test_another_issuer_at_the_address_is_refused(browser: Browser, issuer: Issuer) -> None:
    issuer.address, own = "https://evil.example", issuer.address
    answer = browser.client.send("GET", "/sign-on")
    assert (answer.status, answer.document["where"]) == (503, own)
    assert "evil.example" in answer.document["got"]


def test_without_a_provider_there_is_no_single_sign_on(reader: Client) -> None:
    assert reader.send("GET", "/sign-on").status == 404
    assert b"/sign-on" not in reader.send("GET", "/sign-in").body


def test_a_domain_is_cut_off_the_name(tmp_path: Path, issuer: Issuer) -> None:
    settings = settings_of(issuer.address, name="email", domain="example.org")
    with served(tmp_path / "mlruns", settings) as browser:
        person = {"sub": "1", "groups": ["lab"], "email": "ada@example.org", "email_verified": True}
        assert browser.me(browser.sign_on(issuer, **person))["name"] == "ada"
        for change in ({"email": "bob@evil.example"}, {"email": "bob"}, {"email_verified": False}):
            assert browser.sign_on(issuer, **{**person, "sub": "2", **change}).status == 401, change


def test_a_token_ends_with_its_last_sign_on_and_is_not_renewed_afterwards(ledger: Ledger) -> None:
    user, first = users.sign_on(ledger, "issuer 1", "ada", "member", lifetime=60.0)
    renewed, same = users.sign_on(ledger, "issuer 1", "ada", "member", lifetime=600.0)
    assert (same, renewed.created_at) == (first, user.created_at)
    assert renewed.expires_at is not None
    assert renewed.expires_at > (user.expires_at or 0.0) + 500.0
    users.end_subject(ledger, "issuer 1")
    _, later = users.sign_on(ledger, "issuer 1", "ada", "member", lifetime=60.0)
    assert later != first
    users.end_subject(ledger, "issuer 2")  # no user


def test_a_recovered_ledger_knows_subjects(tmp_path: Path) -> None:
    """Otherwise a name would be free for another person at the provider."""
    root = tmp_path / "mlruns"
    workspace = Workspace.at(root)
    user_admin.add("grace", root=root)
    with workspace.ledger() as ledger:
        users.sign_on(ledger, "issuer 1", "ada", "member", lifetime=60.0)
        columns = {column.name for column in SERVICE_USER.columns}
    assert "subject" in columns
    recovery.recover(workspace.paths.ledger_url)
    with workspace.ledger() as ledger:
        assert {user.name: user.subject for user in users.users(ledger)} == {"ada": "issuer 1", "grace": None}


RIGHT = """\
issuer: https://login.example.org
client_id: sweeps
address: https://sweeps.example.org
roles: {member: [lab], admin: [sweep-admins]}
"""


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ("issuer: http://login.example.org", "sign_on.yaml:1: issuer must begin with https://"),
        ("issuer: ftp://127.0.0.1", "must begin with https://"),
        ("issuer: 'https://['", "must begin with https://"),
        ("address: https://sweeps.example.org/page", "must have no path"),
        ("days: 0", "days must be"),
        ("client_secret: hunter22", "client_secret is not a known key"),
    ],
)
def test_wrong_settings_are_refused_with_their_line(tmp_path: Path, wrong: str, match: str) -> None:
    file = tmp_path / "sign_on.yaml"
    file.write_text(RIGHT)
    check_hosts(read_settings(file), frozenset({"sweeps.example.org"}))
    key = wrong.partition(":")[0]
    lines = [line for line in RIGHT.splitlines() if not line.startswith(f"{key}:")]
    file.write_text("\n".join([wrong, *lines]))
    with pytest.raises(BadInput, match=match):
        read_settings(file)


def test_the_address_must_be_one_of_the_server() -> None:
    settings = settings_of("https://login.example.org", address="https://other.example.org")
    with pytest.raises(BadInput, match=r"--host-name other\.example\.org"):
        check_hosts(settings, Listening(0).hosts)
