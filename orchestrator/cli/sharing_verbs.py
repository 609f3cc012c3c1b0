"""Verbs for sharing a service: `move`, `quota` and `user`."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from orchestrator.cli.options import Json, Root, Server, SweepId, backend_of
from orchestrator.cli.printing import print_answer, print_json, print_line
from orchestrator.client.protocol import DAYS
from orchestrator.errors import counted
from orchestrator.ledger.people.user_records import User
from orchestrator.output import Console
from orchestrator.storage.paths import DEFAULT_ROOT

user_app = typer.Typer(
    help="""Give users access to the HTTP API of `serve`, and revoke it.

    Viewers can read. Members can also submit sweeps and manage their own. Admins can manage all sweeps,
    quotas and users. Only digests of tokens are stored.
    """,
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

UserName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user, such as `ada`.")]


@user_app.command("add")
def add(
    name: UserName,
    role: Annotated[str, typer.Option("--role", help="Role: viewer, member or admin.")] = "member",
    days: Annotated[
        float, typer.Option("--days", help="Days until the token expires (`inf`: never).")
    ] = DAYS,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Add a user and print the token, which cannot be shown again.

    Example:

        sweep user add ada --role member
    """
    user = backend_of(server, root).add_user(name, role, days=days)
    line = f"Created {user.name} ({user.role}){_until(user)}. Token (not shown again):"
    print_answer(user, f"{line}\n{user.token}", as_json=as_json)


@user_app.command("list")
def list_users(root: Root = DEFAULT_ROOT, as_json: Json = False, server: Server = None) -> None:
    """List every user with the role and the state of the token.

    Example:

        sweep user list
    """
    users = backend_of(server, root).users()
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
def revoke(name: UserName, root: Root = DEFAULT_ROOT, as_json: Json = False, server: Server = None) -> None:
    """Revoke the token of a user; sweeps of the user keep running.

    Example:

        sweep user revoke ada
    """
    user = backend_of(server, root).revoke_user(name)
    print_answer(user, f"The token of {user.name} is revoked.", as_json=as_json)


@user_app.command("log")
def log(
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1_000_000, help="Maximum number of entries.")
    ] = 100,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Print the audit log: which user requested which change, the newest first.

    Example:

        sweep user log --limit 20
    """
    entries = backend_of(server, root).audit_log(limit)
    if as_json:
        print_json([asdict(entry) for entry in entries])
        return
    for entry in entries:
        detail = ", ".join(f"{name} {value}" for name, value in entry.detail.items())
        print_line(f"{_day(entry.at)} {entry.actor}: {entry.action} {entry.target} {detail}".rstrip())


def _state(user: User) -> str:
    if user.revoked_at is not None:
        return f"revoked {_day(user.revoked_at)}"
    if not user.is_active(time.time()):
        return "expired"
    return f"valid{_until(user)}"


def _until(user: User) -> str:
    return "" if user.expires_at is None else f" until {_day(user.expires_at)}"


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def move(
    sweep: SweepId,
    priority_class: Annotated[str, typer.Argument(metavar="CLASS", help="Class: urgent, normal or idle.")],
    weight: Annotated[
        float,
        typer.Option(
            "--weight",
            help="Weight relative to the owner's other sweeps.",
        ),
    ] = 1.0,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Move a sweep to another class: `urgent` runs before the others, `idle` uses what they leave.

    Example:

        sweep move listops idle
    """
    moved = backend_of(server, root).move(sweep, priority_class, weight=weight)
    line = f"{moved.id}: class {moved.priority_class}, weight {moved.weight:g}"
    print_answer(moved, line, as_json=as_json)


def quota(
    owner: Annotated[str, typer.Argument(metavar="OWNER", help="Owner of the quota.")],
    weight: Annotated[float | None, typer.Option("--weight", help="Weight relative to other owners.")] = None,
    share: Annotated[
        float | None, typer.Option("--share", help="Maximum fraction of the cluster in use at once (0-1).")
    ] = None,
    gpu_hours: Annotated[
        float | None, typer.Option("--gpu-hours", help="Maximum GPU-hours a week (`inf`: no limit).")
    ] = None,
    sweeps: Annotated[
        float | None,
        typer.Option("--sweeps", help="Maximum number of queued and running sweeps (`inf`: no limit)."),
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="Allow an owner that does not exist yet.")] = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Show the weight and the quotas of an owner, and change the given ones.

    Example:

        sweep quota ada --weight 2 --share 0.5 --gpu-hours 100 --sweeps 4
    """
    backend = backend_of(server, root)
    given = {"weight": weight, "share": share, "gpu_hours": gpu_hours, "sweeps": sweeps}
    changed = any(value is not None for value in given.values())
    row = backend.set_quota(owner, **given, new=new) if changed or new else backend.quota(owner)
    hours = "no limit of" if row.gpu_hours is None else f"{row.gpu_hours:g}"
    most = "no limit of sweeps" if row.sweeps is None else counted(row.sweeps, "sweep")
    quotas = f"at most {row.share:.0%} of a cluster, {hours} GPU-hours a week ({row.used_gpu_hours:.1f} used)"
    print_answer(row, f"{row.owner}: weight {row.weight:g}, {quotas}, {most} at once", as_json=as_json)
