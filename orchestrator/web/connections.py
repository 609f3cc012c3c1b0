"""Limits of connections: how many a server accepts, and deadlines for requests and answers.

A connection is *awaited* while its request is incomplete, and between two requests. If there are too many
connections, the one that has been awaited longest is closed for a new one. A client that sends its request at
once is therefore served, no matter how many others send theirs a byte at a time.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import resource
import socket
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 2_000
"""Largest number of connections."""

MOST_OF_AN_ADDRESS = 1_200
"""Largest number of connections from one IPv4 address or IPv6 /64 network."""

RESERVED_FILES = 512
"""File descriptors reserved for the ledger, for drivers and for files that are served."""

HEAD_SECONDS = 10.0
"""Deadline for the head of a request, from the start of the connection or the end of the last answer."""

BODY_SECONDS = 30.0
"""Deadline for the body of a request."""

ANSWER_SECONDS = 30.0
"""Longest time in which a client reads nothing of an incomplete answer."""

_ACCEPTED_AT_ONCE = 64
_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of the connections of a server.

    Attributes:
        connections: Largest number of connections.
        of_an_address: Largest number from one address.
        head_seconds: Deadline for the head of a request.
        body_seconds: Deadline for its body.
        answer_seconds: Longest time in which a client reads nothing of an answer.
    """

    connections: int = MOST_CONNECTIONS
    of_an_address: int = MOST_OF_AN_ADDRESS
    head_seconds: float = HEAD_SECONDS
    body_seconds: float = BODY_SECONDS
    answer_seconds: float = ANSWER_SECONDS


def descriptors_for(most: int) -> int:
    """Raise the limit of open files of this process; return the number of connections that it permits.

    Args:
        most: Wanted number of connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + RESERVED_FILES
    if 0 <= soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    free = wanted if soft == resource.RLIM_INFINITY else soft
    return min(most, max(free - RESERVED_FILES, free // 4))


class _Accepted:
    """Accepted connection of a server, before and after its TLS handshake."""

    def __init__(self, accepted: socket.socket, network: str) -> None:
        self.socket, self.network = accepted, network
        self.transport: asyncio.Transport | None = None

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()
            return
        with suppress(OSError):  # the client may have closed it
            self.socket.shutdown(socket.SHUT_RDWR)  # so that the TLS handshake fails


class Connection(H11Protocol):
    """HTTP connection that is closed if a deadline passes.

    Args:
        server: Server of the connection.
        place: Accepted connection.
    """

    def __init__(self, server: BoundedServer, place: _Accepted) -> None:
        super().__init__(server.config, server.server_state, server.lifespan.state)
        self._server, self._place, self._limits = server, place, server.limits
        self._awaited: type[h11.IDLE] | type[h11.SEND_BODY] | None = None
        self._late: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline for the first head."""
        self._place.transport = transport
        super().connection_made(transport)
        self._settle()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request; the deadline for the body starts after the head."""
        super().data_received(data)
        self._settle()

    def on_response_complete(self) -> None:
        """Start the deadline for the next head, or for reading the rest of the answer."""
        super().on_response_complete()
        self._settle()
        if self.transport.is_closing():
            self._expect_reading()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, even if the client has not read the last answer."""
        super().timeout_keep_alive_handler()
        self._expect_reading()

    def pause_writing(self) -> None:
        """Start the deadline for the client to read on."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """Cancel the deadline for the client to read on."""
        super().resume_writing()
        self._cancel(self._unread)
        self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadlines and release the connection."""
        for timer in (self._late, self._unread):
            self._cancel(timer)
        self._server.left(self._place)
        super().connection_lost(exc)

    def _settle(self) -> None:
        """Start or cancel the deadline for the part of a request that is awaited."""
        state = self.conn.their_state
        awaited = state if state in (h11.IDLE, h11.SEND_BODY) and not self.transport.is_closing() else None
        if awaited is self._awaited:
            return
        self._cancel(self._late)
        self._awaited, self._late = awaited, None
        self._server.awaits(self._place, awaited is not None)
        if awaited is not None:
            seconds = self._limits.head_seconds if awaited is h11.IDLE else self._limits.body_seconds
            self._late = self.loop.call_later(seconds, self._end)

    def _end(self) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_LATE)
        self.transport.close()
        self._expect_reading()

    def _expect_reading(self) -> None:
        if self._unread is None:
            self._unread = self.loop.call_later(self._limits.answer_seconds, self.transport.abort)

    def _cancel(self, timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


class BoundedServer(uvicorn.Server):
    """Server that accepts connections itself, to count them before their TLS handshake.

    Args:
        config: Configuration of uvicorn.
        listener: Listening socket.
        limits: Limits of the connections.
    """

    def __init__(self, config: uvicorn.Config, listener: socket.socket, limits: ConnectionLimits) -> None:
        super().__init__(config)
        self.limits = limits
        self._listener = listener
        self._places: set[_Accepted] = set()
        self._of_network: Counter[str] = Counter()
        self._awaited: dict[_Accepted, None] = {}
        self._handshakes: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections."""
        await super().startup(sockets=[])
        self._listener.setblocking(False)
        self._listen()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, and close the open ones."""
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        for place in [place for place in self._places if place.transport is None]:
            place.close()
        await super().shutdown(sockets=[self._listener])

    def awaits(self, place: _Accepted, awaited: bool) -> None:
        """Record whether a request is awaited on a connection."""
        self._awaited.pop(place, None)
        if awaited:
            self._awaited[place] = None

    def left(self, place: _Accepted) -> None:
        """Record the end of a connection."""
        self._awaited.pop(place, None)
        if place in self._places:
            self._places.remove(place)
            self._of_network[place.network] -= 1
            if not self._of_network[place.network]:
                del self._of_network[place.network]

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, address = self._listener.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._accept_later()
                return
            place = _Accepted(accepted, network(address[0]))
            if self._has_room(place.network):
                self._begin(place)
            else:
                accepted.close()

    def _accept_later(self) -> None:
        """Close a connection, and accept again in a second; pending ones would keep waking the event loop."""
        self._evict(None)
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener.fileno())
        loop.call_later(1.0, self._listen)

    def _listen(self) -> None:
        if not self.should_exit:
            asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)

    def _has_room(self, of: str) -> bool:
        """Return True if a connection from a network is permitted, after closing another one if necessary."""
        if self._of_network[of] >= self.limits.of_an_address:
            return self._evict(of)
        return len(self._places) < self.limits.connections or self._evict(None)

    def _evict(self, of: str | None) -> bool:
        """Close the longest awaited connection of a network (None: of any); return False without one."""
        place = next((place for place in self._awaited if of in (None, place.network)), None)
        if place is not None:
            self.left(place)
            place.close()
        return place is not None

    def _begin(self, place: _Accepted) -> None:
        self._places.add(place)
        self._of_network[place.network] += 1
        self._awaited[place] = None
        task = asyncio.get_running_loop().create_task(self._connect(place))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _connect(self, place: _Accepted) -> None:
        options: dict[str, Any] = {"ssl": self.config.ssl}
        if self.config.ssl is not None:
            options["ssl_handshake_timeout"] = self.limits.head_seconds
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: Connection(self, place), place.socket, **options
            )
        except OSError:  # of the handshake too
            place.socket.close()
            self.left(place)


def network(address: str) -> str:
    """Return the IPv4 address or the IPv6 /64 network of a client, who may choose the rest of the address."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if found.version == 4:
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
