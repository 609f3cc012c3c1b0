"""Clients that send slowly, read slowly or only connect do not block others."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509

from orchestrator.api.workspace import Workspace
from orchestrator.web import connections, server
from orchestrator.web.connections import ConnectionLimits, descriptors_for, network
from orchestrator.web.server import Listening, serving
from tests.orchestrator.web.server import Client
from tests.orchestrator.web.test_tls import certified

LIMITS = ConnectionLimits(
    connections=40, of_an_address=20, head_seconds=1.0, body_seconds=1.5, answer_seconds=1.0
)
BODY = b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
def limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the address of a server with narrow limits."""
    monkeypatch.setattr(server, "_limits", lambda listening: LIMITS)
    with serving(Workspace.at(tmp_path / "mlruns"), Listening(0)) as address:
        yield address


def _connected(address: str, stack: ExitStack) -> socket.socket:
    where = urlsplit(address)
    assert where.hostname is not None
    return stack.enter_context(socket.create_connection((where.hostname, where.port), timeout=10))


def _health(address: str) -> int:
    return Client(address, Workspace.at("mlruns"), {}).send("GET", "/api/v1/healthz").status


def _seconds_until_closed(connection: socket.socket) -> float:
    began = time.monotonic()
    try:
        while connection.recv(65_536):
            pass
    except ConnectionError:
        pass
    return time.monotonic() - began


@contextmanager
def _sends_now_and_then(connection: socket.socket, text: bytes) -> Iterator[None]:
    """Send a text a byte at a time until the connection is closed, or fail."""
    try:
        for index in range(200):
            connection.sendall(text[index % len(text) : index % len(text) + 1])
            time.sleep(0.05)
        pytest.fail("the connection is still open after 10 s")
    except ConnectionError:
        yield


def test_idle_connections_do_not_keep_others_out(limited: str) -> None:
    with ExitStack() as stack:
        for _ in range(3 * LIMITS.of_an_address):
            _connected(limited, stack)
        began = time.monotonic()
        assert _health(limited) == 200
        assert time.monotonic() - began < LIMITS.head_seconds / 2


def test_a_connection_without_a_request_is_closed(limited: str) -> None:
    with ExitStack() as stack:
        assert _seconds_until_closed(_connected(limited, stack)) < 3 * LIMITS.head_seconds


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("before", "slow"),
    [
        (b"", b"GET / HTTP/1.1\r\nX: " + b"y" * 500),
        (b"", b"\r\n"),
        (BODY + b"Content-Length: 5000\r\n\r\n", b" "),
        (BODY + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    ],
    ids=["head", "empty-lines", "body", "chunks"],
)
def test_a_request_that_is_sent_a_byte_at_a_time_is_not_waited_for(
    limited: str, before: bytes, slow: bytes
) -> None:
    with ExitStack() as stack:
        connection = _connected(limited, stack)
        connection.sendall(before)
        began = time.monotonic()
        with _sends_now_and_then(connection, slow):
            assert time.monotonic() - began < 3 * LIMITS.body_seconds
    assert _health(limited) == 200


def test_a_second_request_that_is_sent_slowly_is_not_waited_for(limited: str) -> None:
    with ExitStack() as stack:
        connection = _connected(limited, stack)
        connection.sendall(b"GET /api/v1/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        with _sends_now_and_then(connection, b"GET / HTTP/1.1\r\nX: " + b"y" * 500):
            assert time.monotonic() - began < 3 * LIMITS.head_seconds


def test_a_late_request_is_told_so(limited: str) -> None:
    with ExitStack() as stack:
        connection = _connected(limited, stack)
        connection.sendall(b"GET / HTTP/1.1\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 408 ")


@pytest.mark.slow
def test_a_client_that_reads_nothing_is_not_waited_for(limited: str) -> None:
    """The answer is larger than the buffers of the system."""
    request = b"GET /assets/page.css HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with ExitStack() as stack:
        connection = _connected(limited, stack)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.settimeout(1.0)
        with pytest.raises(OSError, match=r"timed out|reset|Broken pipe"):
            connection.sendall(100_000 * request)
        time.sleep(2 * LIMITS.answer_seconds)
        with pytest.raises(ConnectionError):
            connection.sendall(100_000 * request)


def test_a_connection_without_its_tls_handshake_is_counted_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_limits", lambda listening: LIMITS)
    file, key = certified(tmp_path, [x509.DNSName("localhost")])
    listening = Listening(0, certificate=file, key=key)
    with serving(Workspace.at(tmp_path / "mlruns"), listening) as address, ExitStack() as stack:
        first = _connected(address, stack)
        others = [_connected(address, stack) for _ in range(LIMITS.of_an_address)]
        assert _seconds_until_closed(first) < LIMITS.head_seconds / 2, "the oldest makes room"
        assert _seconds_until_closed(others[-1]) < 3 * LIMITS.head_seconds


def test_connections_leave_files_to_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"now": (1_024, 4_096)}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: limits.update(now=pair))
    reserved = connections.RESERVED_FILES
    assert descriptors_for(2_000) == 2_000
    assert limits["now"] == (2_000 + reserved, 4_096)
    limits["now"] = (1_024, 1_024)
    assert descriptors_for(2_000) == 1_024 - reserved
    limits["now"] = (256, 256)
    assert descriptors_for(2_000) == 64
    limits["now"] = (1_024, resource.RLIM_INFINITY)
    assert descriptors_for(2_000) == 2_000


def test_clients_of_one_network_share_its_places() -> None:
    assert network("10.0.0.7") == network("::ffff:10.0.0.7") == "10.0.0.7"
    assert network("2001:db8::1") == network("2001:db8::ffff") != network("2001:db8:0:1::1")
    assert network("fe80::1%eth0") == "fe80::/64"
