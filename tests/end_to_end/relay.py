"""A proxy between a browser and a server: it counts streams, answers 502 on request, and can be cut."""

from __future__ import annotations

import re
import select
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

_BAD_GATEWAY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Relay(socketserver.ThreadingTCPServer):
    """Passes each request on over a connection of its own.

    Args:
        server: address of the server.

    Attributes:
        is_failing: whether requests for events are answered with 502.
        requests: the paths of all requests for documents.
    """

    daemon_threads = True

    def __init__(self, server: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._server = urlsplit(server)
        self._open: set[socket.socket] = set()
        self._streams = 0
        self._lock = threading.Lock()
        self.is_failing = False
        self.requests: list[str] = []

    @property
    def address(self) -> str:
        """Return the address that browsers open."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def streams(self) -> int:
        """Return the number of open streams of events."""
        return self._streams

    def cut(self) -> None:
        """Close every open connection."""
        with self._lock:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a connection that was cut."""

    def relay(self, browser: socket.socket) -> None:
        """Pass on one request and its answer."""
        with browser.makefile("rb") as lines:
            head = b"".join(iter(lines.readline, b"\r\n"))
            if not head:
                return
            path = head.split(b" ", 2)[1].decode()
            is_stream = path.partition("?")[0].endswith("/events")
            self.requests.append(path)
            if is_stream and self.is_failing:
                browser.sendall(_BAD_GATEWAY)
                return
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            body = lines.read(int(length[1])) if length else b""
        head = re.sub(rb"(?i)connection: [^\r]*", b"Connection: close", head)
        with socket.create_connection((self._server.hostname, self._server.port)) as server:
            server.sendall(head + b"\r\n" + body)
            with self._counted({browser, server}, is_stream):
                while server in (ready := select.select([browser, server], [], [])[0]):
                    part = server.recv(65_536)
                    if not part or browser in ready:
                        return
                    browser.sendall(part)

    @contextmanager
    def _counted(self, connections: set[socket.socket], is_stream: bool) -> Iterator[None]:
        with self._lock:
            self._open |= connections
            self._streams += is_stream
        try:
            yield
        finally:
            with self._lock:
                self._open -= connections
                self._streams -= is_stream


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Relay)
        self.server.relay(self.request)


@contextmanager
def relayed(server: str) -> Iterator[Relay]:
    """Run a relay for the length of a `with` block."""
    with Relay(server) as relay:
        thread = threading.Thread(target=relay.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield relay
        finally:
            relay.cut()
            relay.shutdown()
            thread.join()
