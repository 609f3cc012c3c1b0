"""Fuzzed requests of every route of the schema: a malformed one is refused with a problem document."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import sweeps
from tests.orchestrator.web.routes import APP, ROUTES, path_of
from tests.orchestrator.web.server import QUEUED, Answer, Client

ODD = st.sampled_from(
    [
        *("", " ", "0", "-1", "1.5", "1e309", "NaN", "-Infinity", "9" * 30, "true", "null", "[]", "{}", "*"),
        *("\0", "\x1b[31m", "\u202e", "é", "\U0001f600", "%", "%00", "..", "../..", "/", "a" * 300, "'; --"),
        *("running", "value", "loss", "val/accuracy", "confirmation", sweeps.SWEEP_ID),
    ]
)
WHOLE = st.sampled_from(["0", "1", "-1", "1.0", str(2**31), str(2**63), str(2**64), "9" * 5_000, "x"])
"""Values for an integer; files and databases store at most 64 bits."""

NUMBERS = st.sampled_from([0, -1, 2**31, 2**63, -(2**70), 10**400, 0.5, 1e308, float("inf"), float("nan")])
PLAIN = st.none() | st.booleans() | NUMBERS | ODD | st.just("\ud800")
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD, inner, max_size=3), max_leaves=6
)


def _cursor(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


CURSORS = st.one_of(
    st.builds(_cursor, VALUES),
    st.builds(_cursor, st.tuples(PLAIN, PLAIN, PLAIN).map(list)),
    st.builds(_cursor, st.tuples(NUMBERS, st.just("x"), NUMBERS).map(list)),
    st.sampled_from([base64.b64encode(text).decode() for text in (b"\xff\xfe", b"[" * 290, b"[1,", b"\0")]),
)
CONTENTS = st.one_of(
    st.builds(lambda value: json.dumps(value).encode(), VALUES),
    st.sampled_from([b"", b"{", b"\xff\xfe", b"\0", b"[" * 100_000, b'{"a":' * 50_000, b"9" * 10_000]),
)
HEADERS = ("Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID", "Cookie", "Range")
SCHEMA = APP.openapi()
SLOW = {"submit", "validate", "replay", "sql"}
"""Routes that start a process of their own."""


def _schema(route: APIRoute) -> Mapping[str, Any]:
    [method] = route.methods
    described: Mapping[str, Any] = SCHEMA["paths"].get(f"/api/v1{route.path}", {})
    return described.get(method.lower(), {})


def _properties(schema: Any) -> dict[str, Any]:
    """Return the properties of the JSON body of a request."""
    found = schema.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    name = found.get("$ref", "").rpartition("/")[2]
    return dict(SCHEMA["components"]["schemas"].get(name, {}).get("properties", {}))


def _values(parameter: Any) -> st.SearchStrategy[str]:
    if parameter["name"] == "after":
        return CURSORS
    return WHOLE if "integer" in json.dumps(parameter["schema"]) else ODD


@st.composite
def _requests(draw: st.DrawFn, route: APIRoute) -> tuple[str, bytes | None, dict[str, str]]:
    """Draw the address, the body and the headers of a request to a route."""
    known = {"sweep_id": sweeps.SWEEP_ID, "number": "0", "name": "report.html", "owner": "ada"}
    parts = {
        name: draw(st.just(value) | (WHOLE if name == "number" else ODD)) for name, value in known.items()
    }
    path = path_of(route).format(**{name: quote(value, safe="") for name, value in parts.items()})
    schema = _schema(route)
    described = [one for one in schema.get("parameters", ()) if one["in"] == "query" and draw(st.booleans())]
    query = {one["name"]: draw(_values(one)) for one in described}
    [method] = route.methods
    content = None
    if method != "GET":
        properties = _properties(schema)
        whole = st.fixed_dictionaries({}, optional=dict.fromkeys(properties, VALUES))
        content = draw(CONTENTS | whole.map(lambda body: json.dumps(body).encode()))
    headers = {
        name: draw(ODD).encode("latin-1", "replace").decode("latin-1").translate(_WITHOUT_CONTROLS)
        for name in HEADERS
        if draw(st.integers(0, 5)) == 0
    }
    return f"{path}?{urlencode(query)}" if query else path, content, headers


_WITHOUT_CONTROLS = dict.fromkeys(range(32))
"""Characters that a client cannot send in a header."""


def _check(answer: Answer, request: Any) -> None:
    assert answer.status < 500, (request, answer.body)
    if answer.status >= 400:
        if answer.body == b"Malformed range header.":  # Starlette's own answer
            return
        is_tool = isinstance(request, tuple) and request[0] == "/mcp"
        if is_tool and answer.status in {400, 406}:  # an error of its protocol, JSON-RPC
            assert answer.document["error"]["message"], request
            return
        assert answer.headers["content-type"] == "application/problem+json", (request, answer.body)
        assert answer.document["detail"], request


@pytest.mark.slow_cases("replay-10")  # each request starts a process that imports for seconds
@pytest.mark.parametrize("examples", [10, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_malformed_request_is_answered_with_a_sentence(
    client: Client, route: APIRoute, examples: int
) -> None:
    [method] = route.methods

    @settings(
        max_examples=examples // 10 if route.name in SLOW else examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(_requests(route))
    def ask(request: tuple[str, bytes | None, dict[str, str]]) -> None:
        path, content, headers = request
        _check(client.send(method, path, "grace", content=content, headers=headers), request)

    if route.name in {"ready", "health"}:  # the supervision does not run beside this server
        assert client.send(method, f"/api/v1{route.path}").status in {200, 503}
        return
    ask()


@pytest.mark.parametrize("path", ["/sweeps", f"/sweeps/{QUEUED}/trials", f"/sweeps/{sweeps.SWEEP_ID}/trials"])
@pytest.mark.parametrize("value", [[], {}, [1], {"a": 1}, None, True, "x", 1e308, 2**70, "\ud800"])
def test_a_cursor_of_another_value_is_no_cursor(reader: Client, path: str, value: Any) -> None:
    first = reader.get(f"{path}?limit=1")["next"]
    names = [json.loads(base64.urlsafe_b64decode(first + "=="))[0]] if first else ["sweeps"]
    for cursor in (_cursor([names[0], value, value]), _cursor([names[0], 0, value]), _cursor([value, 0, 0])):
        _check(reader.send("GET", f"/api/v1{path}?{urlencode({'after': cursor})}", "vera"), cursor)


def test_a_head_of_a_request_is_limited(reader: Client) -> None:
    headers = {f"X-{number}": "y" * 2_000 for number in range(5)}
    answer = reader.send("GET", f"/api/v1/me?x={'y' * 8_000}", "vera", headers=headers)
    assert (answer.status, answer.document["where"]) == (431, "head")
    assert reader.send("GET", f"/api/v1/me?x={'y' * 20_000}", "vera").status in {400, 431}


def test_half_a_character_is_no_text(client: Client) -> None:
    for name, text in (("small", "a: \ud800"), ("\ud800", "a: 1")):
        body = {"name": name, "text": text}
        for path in ("/validate", "/sweeps"):
            _check(client.send("POST", f"/api/v1{path}", "ada", body=body), body)
