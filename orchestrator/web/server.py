"""The HTTP server beside the supervision of a service: where it listens, and its life in a thread."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from orchestrator.api.serving import Rounds
from orchestrator.api.workspace import Workspace
from orchestrator.driver import preflight
from orchestrator.errors import BadInput
from orchestrator.web.app import application
from orchestrator.web.connections import (
    MOST_CONNECTIONS,
    MOST_OF_AN_ADDRESS,
    BoundedServer,
    Limits,
    descriptors_for,
)
from orchestrator.web.site import OneTimeKey, Site

LOOPBACK = "127.0.0.1"

IDLE_SECONDS = 5
"""How long a connection may stay open between two requests."""

GRACE_SECONDS = 3
"""How long open requests may go on when the server ends."""

_LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})


@dataclass(frozen=True)
class Listening:
    """Where a server listens.

    Attributes:
        port: 0 for any free one.
        host: an address of this machine.
        certificate: file of the TLS certificate, or None.
        key: file of the certificate's private key, or None if `certificate` holds it too.
        behind_proxy: whether a proxy on this machine receives the requests over TLS and passes them on.
        names: under which browsers reach the server, besides its address.
        plugins: whether submitted files may name what other installed packages have added.
    """

    port: int
    host: str = LOOPBACK
    certificate: Path | None = None
    key: Path | None = None
    behind_proxy: bool = False
    names: tuple[str, ...] = ()
    plugins: bool = False

    def check(self) -> None:
        """Check that tokens cannot be read on the way.

        Raises:
            BadInput: the host is no address, or others reach it without TLS.
        """
        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            remedy = "Write 127.0.0.1, or an address of this machine; `--host-name` is for names."
            raise BadInput("--http-host", "must be an address", self.host, remedy) from None
        if not address.is_loopback and self.certificate is None and not self.behind_proxy:
            must = "must be a loopback address unless the server has TLS or is behind a proxy that has"
            remedy = "Add `--certificate FILE --key FILE`, or `--behind-proxy`."
            raise BadInput("--http-host", must, self.host, remedy)
        for option, file in (("--certificate", self.certificate), ("--key", self.key)):
            if file is not None and not file.is_file():
                raise BadInput(option, "must be a file", str(file), "Name the file in PEM format.")

    @property
    def is_secure(self) -> bool:
        """Return True if browsers reach the server over TLS."""
        return self.certificate is not None or self.behind_proxy

    @property
    def hosts(self) -> frozenset[str]:
        """Return every name and address under which browsers reach the server, as `Host` gives it."""
        own = f"[{self.host}]" if ":" in self.host else self.host
        return _LOOPBACK_NAMES | {own} | {name.lower() for name in self.names}


@contextmanager
def serving(
    workspace: Workspace, listening: Listening, rounds: Rounds | None = None, key: OneTimeKey | None = None
) -> Iterator[str]:
    """Serve a workspace over HTTP for the length of a `with` block; yield the address of the server.

    Args:
        workspace: the folders of the service.
        listening: where the server listens.
        rounds: of the supervision beside the server; None if there is none.
        key: signs one browser in; None without.

    Raises:
        BadInput: others would reach the server without TLS, or the port is taken.
    """
    site = Site(workspace, listening.hosts, listening.is_secure, listening.plugins, rounds, key)
    with answering(site, listening) as address:
        yield address


@contextmanager
def answering(site: Site, listening: Listening) -> Iterator[str]:
    """Answer requests to a site in a thread for the length of a `with` block; yield the server's address.

    Args:
        site: the state of the server, with its clocks and allowances.
        listening: where the server listens.

    Raises:
        BadInput: others would reach the server without TLS, or the port is taken.
    """
    preflight.check_paths(site.workspace.paths)
    site.workspace.paths.create()
    with running(application(site), listening, before_the_end=site.feeds.close) as address:
        yield address


@contextmanager
def running(
    app: ASGIApp,
    listening: Listening,
    *,
    option: str = "--http",
    before_the_end: Callable[[], None] = lambda: None,
) -> Iterator[str]:
    """Run an application in a thread for the length of a `with` block; yield the server's address.

    Args:
        app: the application.
        listening: where the server listens.
        option: of the command line that names the port.
        before_the_end: called when the server begins to end; ends answers that would go on for ever.

    Raises:
        BadInput: others would reach the server without TLS, or the port is taken.
    """
    listening.check()
    with _bound(listening, option) as listener:
        server = BoundedServer(_config(app, listening), listener, _limits(listening))
        thread = threading.Thread(target=server.run, name="http", daemon=True)
        thread.start()
        try:
            yield _address(listening, listener)
        finally:
            server.should_exit = True
            before_the_end()
            thread.join(GRACE_SECONDS + 1.0)  # a request that is being answered may hold it for longer


def _config(app: ASGIApp, listening: Listening) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        log_level="error",  # a stranger could fill the log with malformed requests
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        proxy_headers=listening.behind_proxy,
        forwarded_allow_ips=LOOPBACK,
        ssl_certfile=listening.certificate,
        ssl_keyfile=listening.key,
    )


def _limits(listening: Listening) -> Limits:
    most = descriptors_for(MOST_CONNECTIONS)
    if listening.behind_proxy:  # which has the address of all of them
        return Limits(most, most)
    return Limits(most, most * MOST_OF_AN_ADDRESS // MOST_CONNECTIONS)


def _bound(listening: Listening, option: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    try:
        return socket.create_server((listening.host, listening.port), family=family, backlog=MOST_CONNECTIONS)
    except OSError as error:
        got = f"{listening.host} {listening.port}: {error.strerror}"
        raise BadInput(option, "must be a free port of this machine", got, "Choose another.") from error


def _address(listening: Listening, listener: socket.socket) -> str:
    scheme = "https" if listening.certificate else "http"
    host = f"[{listening.host}]" if ":" in listening.host else listening.host
    return f"{scheme}://{host}:{listener.getsockname()[1]}"
