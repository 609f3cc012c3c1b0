"""HTTP server beside the supervision of a service, in a thread of its own."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from starlette.types import ASGIApp

from orchestrator.api.serving import Rounds
from orchestrator.api.workspace import Workspace
from orchestrator.driver import preflight
from orchestrator.errors import BadInput
from orchestrator.web.app_state import AppState, OneTimeKey
from orchestrator.web.application import application
from orchestrator.web.connections import (
    MOST_CONNECTIONS,
    MOST_OF_AN_ADDRESS,
    BoundedServer,
    ConnectionLimits,
    descriptors_for,
)

if TYPE_CHECKING:  # its packages are an extra
    from orchestrator.web.identity_provider import IdentityProvider

LOOPBACK = "127.0.0.1"

IDLE_SECONDS = 5
"""Keep-alive time between two requests."""

GRACE_SECONDS = 3
"""Time for open requests at shutdown."""

_LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})


@dataclass(frozen=True)
class Listening:
    """Address and TLS settings of a server.

    Attributes:
        port: Port, or 0 for any free one.
        host: Address of this machine.
        certificate: File of the TLS certificate, or None.
        key: File of the private key, or None if it is in `certificate`.
        behind_proxy: Whether a reverse proxy on this machine terminates TLS.
        names: Further host names of the server.
        plugins: Whether submitted files may use plugins of other installed packages.
    """

    port: int
    host: str = LOOPBACK
    certificate: Path | None = None
    key: Path | None = None
    behind_proxy: bool = False
    names: tuple[str, ...] = ()
    plugins: bool = False

    def check(self) -> None:
        """Check that tokens are never sent over a network without TLS.

        Raises:
            BadInput: The host is not an address, or other machines could reach it without TLS.
        """
        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            remedy = "Write 127.0.0.1 or another address of this machine; `--host-name` takes names."
            raise BadInput("--http-host", "must be an IP address", self.host, remedy) from None
        if not address.is_loopback and self.certificate is None and not self.behind_proxy:
            must = "must be a loopback address unless TLS is used"
            remedy = "Add `--certificate FILE --key FILE`, or `--behind-proxy`."
            raise BadInput("--http-host", must, self.host, remedy)
        for option, file in (("--certificate", self.certificate), ("--key", self.key)):
            if file is not None and not file.is_file():
                raise BadInput(option, "must be an existing file", str(file), "Name a file in PEM format.")

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the server over TLS."""
        return self.certificate is not None or self.behind_proxy

    @property
    def hosts(self) -> frozenset[str]:
        """Host names and addresses of the server, as in the header `Host`."""
        own = f"[{self.host}]" if ":" in self.host else self.host
        return _LOOPBACK_NAMES | {own} | {name.lower() for name in self.names}


@contextmanager
def serving(
    workspace: Workspace,
    listening: Listening,
    rounds: Rounds | None = None,
    key: OneTimeKey | None = None,
    provider: IdentityProvider | None = None,
) -> Iterator[str]:
    """Serve a workspace over HTTP for a `with` block; yield the address of the server.

    >>> with serving(Workspace.at("mlruns"), Listening(8080)) as address:  # doctest: +SKIP
    ...     print(address)
    http://127.0.0.1:8080

    Args:
        workspace: Folders of the service.
        listening: Address and TLS settings.
        rounds: Rounds of the supervision in this process, or None.
        key: Sign-in key, or None.
        provider: Provider of single sign-on, or None.

    Raises:
        BadInput: Other machines could reach the server without TLS, or the port is taken.
    """
    of_server = (workspace, listening.hosts, listening.is_secure, listening.plugins)
    state = AppState(*of_server, rounds=rounds, key=key, provider=provider)
    with answering(state, listening) as address:
        yield address


@contextmanager
def answering(state: AppState, listening: Listening) -> Iterator[str]:
    """Serve the application with a given state for a `with` block; yield the address of the server.

    Args:
        state: Shared state, with its clocks and rate limits.
        listening: Address and TLS settings.

    Raises:
        BadInput: Other machines could reach the server without TLS, or the port is taken.
    """
    preflight.check_paths(state.workspace.paths)
    state.workspace.paths.create()
    with (
        state.workspace.keeping_ledgers(),
        running(application(state), listening, on_shutdown=state.feeds.close) as address,
    ):
        yield address


@contextmanager
def running(
    app: ASGIApp,
    listening: Listening,
    *,
    option: str = "--http",
    on_shutdown: Callable[[], None] = lambda: None,
) -> Iterator[str]:
    """Run an ASGI application in a thread for a `with` block; yield the address of the server.

    Args:
        app: Application.
        listening: Address and TLS settings.
        option: Command-line option of the port, for refusals.
        on_shutdown: Function that ends streams, called when the server shuts down.

    Raises:
        BadInput: Other machines could reach the server without TLS, or the port is taken.
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
            on_shutdown()
            thread.join(GRACE_SECONDS + 1.0)  # an open request may delay it


def _config(app: ASGIApp, listening: Listening) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        log_level="error",  # otherwise anybody could fill the log with malformed requests
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


def _limits(listening: Listening) -> ConnectionLimits:
    most = descriptors_for(MOST_CONNECTIONS)
    if listening.behind_proxy:  # all connections have its address
        return ConnectionLimits(most, most)
    return ConnectionLimits(most, most * MOST_OF_AN_ADDRESS // MOST_CONNECTIONS)


def _bound(listening: Listening, option: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    try:
        return socket.create_server((listening.host, listening.port), family=family, backlog=MOST_CONNECTIONS)
    except OSError as error:
        got = f"{listening.host} {listening.port}: {error.strerror}"
        raise BadInput(option, "must be a free port of this machine", got, "Choose another port.") from error


def _address(listening: Listening, listener: socket.socket) -> str:
    scheme = "https" if listening.certificate else "http"
    host = f"[{listening.host}]" if ":" in listening.host else listening.host
    return f"{scheme}://{host}:{listener.getsockname()[1]}"
