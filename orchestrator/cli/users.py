"""The verbs `user add`, `user list`, `user revoke` and `user log`."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from orchestrator.api import users as api
from orchestrator.api.workspace import DEFAULT_ROOT
from orchestrator.cli import remote
from orchestrator.cli.display import print_json, print_line
from orchestrator.cli.options import Json, Root
from orchestrator.cli.remote import Server
from orchestrator.output import Console

user_app = typer.Typer(
    help="""Give people access to the HTTP API of `serve`, and take it away.

    A viewer reads; a member also submits sweeps and rules the own ones; an admin rules all sweeps, quotas and
    users. Tokens are stored as digests only.
    """,
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

UserName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user, such as `ada`.")]


@user_app.command("add")
def add(
    name: UserName,
    role: Annotated[str, typer.Option("--role", help="One of viewer, member, admin.")] = "member",
    days: Annotated[
        float, typer.Option("--days", help="After so many days the token expires; `inf` for never.")
    ] = api.DAYS,
    root: Root = DEFAULT_ROOT,
    server: Server = None,
) -> None:
    """Add a user and print the token, which is shown only once.

    Example:

        sweep user add ada --role member
    """
    if server is not None:
        user, token = remote.add_user(server, name, role, days)
    else:
        user, token = api.add(name, role, days=days, root=root)
    print_line(f"{user.name} has the role {user.role}{_until(user)}. The token, which is shown only now:")
    print_line(token)


@user_app.command("list")
def list_users(root: Root = DEFAULT_ROOT, as_json: Json = False, server: Server = None) -> None:
    """List every user with the role and the state of the token.

    Example:

        sweep user list
    """
    users = remote.users(server) if server is not None else api.users(root=root)
    if as_json:
        print_json([asdict(user) for user in users])
        return
    if not users:
        print_line("There are no users: `user add NAME` adds one.")
        return
    table = Table("name", "role", "token", box=None, pad_edge=False)
    for user in users:
        table.add_row(user.name, user.role, _state(user))
    Console().print(table)


@user_app.command("revoke")
def revoke(name: UserName, root: Root = DEFAULT_ROOT, server: Server = None) -> None:
    """Revoke the token of a user at once; the user's sweeps go on.

    Example:

        sweep user revoke ada
    """
    user = remote.revoke_user(server, name) if server is not None else api.revoke(name, root=root)
    print_line(f"The token of {user.name} is revoked.")


@user_app.command("log")
def log(
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000_000, help="Most entries to print.")] = 100,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Print which user asked for which change, the newest first.

    Example:

        sweep user log --limit 20
    """
    if server is not None:
        entries = remote.audit_log(server, limit)
    else:
        entries = list(api.audit_log(limit=limit, root=root))
    if as_json:
        print_json([asdict(entry) for entry in entries])
        return
    for entry in entries:
        detail = ", ".join(f"{name} {value}" for name, value in entry.detail.items())
        print_line(f"{_day(entry.at)} {entry.actor}: {entry.action} {entry.target} {detail}".rstrip())


def _state(user: api.User) -> str:
    if user.revoked_at is not None:
        return f"revoked {_day(user.revoked_at)}"
    if not user.is_active(time.time()):
        return "expired"
    return f"valid{_until(user)}"


def _until(user: api.User) -> str:
    return "" if user.expires_at is None else f" until {_day(user.expires_at)}"


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
