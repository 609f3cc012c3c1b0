"""The verbs `serve` (the supervision of submitted sweeps, and the HTTP server beside it) and `ui`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator import json_log
from orchestrator.accounts import CODE_AS_USERS, check_closed
from orchestrator.api import serving as service
from orchestrator.api import user_admin as users
from orchestrator.api.workspace import Workspace
from orchestrator.cli.options import Data, Root, with_options
from orchestrator.cli.printing import print_line
from orchestrator.client.names import check_word
from orchestrator.errors import BadInput
from orchestrator.storage.paths import DEFAULT_DATA, DEFAULT_ROOT
from orchestrator.system import handled
from orchestrator.web import mlflow_pages
from orchestrator.web.app_state import KEY_SECONDS, OneTimeKey
from orchestrator.web.server import LOOPBACK, Listening, serving

if TYPE_CHECKING:  # its packages are an extra
    from orchestrator.web.identity_provider import IdentityProvider

OIDC_SECRET = "SWEEP_OIDC_SECRET"
"""Environment variable: secret of the service at the provider of single sign-on; a public client if unset."""

_HTTP = "HTTP"


@dataclass(frozen=True)
class HttpOptions:
    """The options of `serve` for the HTTP API and the page; each field is an option."""

    http: Annotated[
        int | None,
        typer.Option(
            "--http",
            metavar="PORT",
            min=0,
            max=65_535,
            envvar="SWEEP_HTTP",
            help="Serve the HTTP API and the page on this port.",
            rich_help_panel=_HTTP,
        ),
    ] = None
    host: Annotated[
        str,
        typer.Option("--http-host", help="Address of this machine to listen on.", rich_help_panel=_HTTP),
    ] = LOOPBACK
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", help="TLS certificate (PEM file).", rich_help_panel=_HTTP),
    ] = None
    key: Annotated[
        Path | None,
        typer.Option("--key", help="Private key of the certificate (PEM file).", rich_help_panel=_HTTP),
    ] = None
    behind_proxy: Annotated[
        bool,
        typer.Option(
            "--behind-proxy",
            help="Trust a reverse proxy on this machine that terminates TLS.",
            rich_help_panel=_HTTP,
        ),
    ] = False
    host_names: Annotated[
        list[str] | None,
        typer.Option(
            "--host-name",
            help="Host name that browsers use for the server; repeatable.",
            rich_help_panel=_HTTP,
        ),
    ] = None
    allow_plugins: Annotated[
        bool,
        typer.Option(
            "--allow-plugins",
            help="Allow files submitted over HTTP to use plugins of other installed packages.",
            rich_help_panel=_HTTP,
        ),
    ] = False
    oidc: Annotated[
        Path | None,
        typer.Option(
            "--oidc",
            metavar="FILE",
            help="YAML file with the settings of an OpenID Connect provider, for single sign-on.",
            rich_help_panel=_HTTP,
        ),
    ] = None

    def listening(self, port: int) -> Listening:
        """Return the address and the names of the server.

        Raises:
            BadInput: Another account can read the private key.
        """
        if (private := self.key or self.certificate) is not None and private.is_file():
            check_closed("--certificate" if self.key is None else "--key", private)
        names = tuple(self.host_names or ())
        return Listening(
            port, self.host, self.certificate, self.key, self.behind_proxy, names, self.allow_plugins
        )


@with_options(over_http=HttpOptions)
def serve(
    drivers: Annotated[
        int, typer.Option("--drivers", metavar="N", help="Maximum number of concurrent sweeps.")
    ] = service.DRIVERS_AT_ONCE,
    stop_drivers: Annotated[
        bool,
        typer.Option(
            "--stop-drivers",
            help="On shutdown, save the trials and stop running sweeps too (for containers and batch jobs).",
        ),
    ] = False,
    over_http: HttpOptions = HttpOptions(),
    code_as_users: Annotated[
        str | None,
        typer.Option(
            "--code-as-users",
            metavar="GROUP",
            envvar=CODE_AS_USERS,
            help="Run user code as the owner's Unix account; owners must belong to GROUP. Requires root.",
        ),
    ] = None,
    log: Annotated[
        str,
        typer.Option(
            "--log",
            envvar=json_log.LOG,
            help="Format of the logs of service and drivers: text or json.",
        ),
    ] = json_log.TEXT,
    own_root: Root = DEFAULT_ROOT,
    data: Data = DEFAULT_DATA,
) -> int:
    """Run the service of a root: start the driver of each submitted sweep, and restart it after a crash.

    It runs until SIGTERM or Ctrl-C, and then ends within ten seconds. The drivers continue without it, and
    the next service finds them.

    Exit codes: 0 ended, 4 ended with its drivers (`--stop-drivers`), 6 another service supervises the ledger.

    Example:

        sweep serve --http 8080
    """
    _log_as(log)
    if code_as_users is not None:
        service.run_code_as_users(code_as_users, root=own_root, data=data)
    rounds, later = service.Rounds(), list[str]()
    beside: AbstractContextManager[None] = nullcontext()

    def say(line: str) -> None:
        _say(line)
        while later:  # what is of use once the service runs
            _say(later.pop(0))

    if over_http.http is not None:
        listening = over_http.listening(over_http.http)
        provider = None if over_http.oidc is None else _identity_provider(over_http.oidc, listening)
        beside = _answering(
            Workspace.at(own_root, data),
            listening,
            rounds,
            later,
            stop_drivers=stop_drivers,
            provider=provider,
        )
    return service.serve(
        say, drivers=drivers, stop_drivers=stop_drivers, root=own_root, beside=beside, rounds=rounds
    )


def ui(
    port: Annotated[int, typer.Option("--port", min=1, max=65_535, help="Port on 127.0.0.1.")] = 5000,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Serve MLflow's pages on 127.0.0.1 until Ctrl-C.

    The printed link works once, in one browser.

    Example:

        sweep ui --port 5001
    """
    for name in handled():
        signal.signal(name, signal.default_int_handler)
    workspace = Workspace.at(root)
    with (
        workspace.mlflow() as (server, address),
        mlflow_pages.serving(address, port, page := workspace.mlflow_page) as link,
    ):
        print_line(f"MLflow's pages (the link works once, in one browser): {link}")
        if page:
            print_line(f"It leads to the runs of the newest sweep: http://{LOOPBACK}:{port}/{page}")
        print_line("Press Ctrl-C to stop.")
        with suppress(KeyboardInterrupt):
            return server.wait()
    return 0


def _log_as(form: str) -> None:
    """Log as `text` or `json` in this process and in its drivers.

    Raises:
        BadInput: It is another word.
    """
    check_word("--log", form, (json_log.TEXT, json_log.JSON))
    os.environ[json_log.LOG] = form
    if json_log.is_json():
        json_log.begin()


def _identity_provider(file: Path, listening: Listening) -> IdentityProvider:
    """Return the provider of a settings file, with the client secret of the environment.

    Raises:
        BadInput: A package is missing, the settings are wrong, or their address is not one of the server.
    """
    if find_spec("authlib") is None:
        remedy = "Install it with `pip install 'rotrnn-sweeps[oidc]'`."
        raise BadInput("--oidc", "needs Authlib", "no package authlib", remedy)
    from orchestrator.web.identity_provider import IdentityProvider, check_hosts, read_settings

    settings = read_settings(file)
    check_hosts(settings, listening.hosts)
    return IdentityProvider(settings, os.environ.get(OIDC_SECRET))


def _say(line: str) -> None:
    """Print a line of the service in the format of its log."""
    if json_log.is_json():
        json_log.log(line)
    else:
        print_line(line)


@contextmanager
def _answering(
    workspace: Workspace,
    listening: Listening,
    rounds: service.Rounds,
    later: list[str],
    *,
    stop_drivers: bool,
    provider: IdentityProvider | None = None,
) -> Iterator[None]:
    """Serve a workspace over HTTP for the length of a `with` block, and print its address.

    Args:
        workspace: Workspace of the service.
        listening: Address and names of the server.
        rounds: Rounds of the supervision.
        later: Lines to print once the service runs; the address of the page is added.
        stop_drivers: Whether drivers end with the service.
        provider: Provider of single sign-on, or None.
    """
    user = users.signed_in_by_link(workspace.paths.root)
    key = OneTimeKey(user) if user is not None else None
    with serving(workspace, listening, rounds, key, provider) as address:
        _say(f"The HTTP API is at {address}/api/v1; `user add NAME` gives access to it.")
        by_name = listening.behind_proxy and listening.names
        page = f"https://{listening.names[0]}" if by_name else address
        once = f"signs {user} in, once, within {KEY_SECONDS / 60:.0f} minutes"
        link = f"{page}." if key is None else f"{page}/sign-in#{key.text} (the link {once})."
        drivers = "its drivers save their trials and end too" if stop_drivers else "its sweeps continue"
        later += [
            f"The page is at {link}",
            f"Ctrl-C or `kill {os.getpid()}` ends the service; {drivers}.",
        ]
        yield
