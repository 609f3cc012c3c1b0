"""Verbs for sharing a service: `move`, `quota`, `cost`, `notify` and `user`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from orchestrator.cli.options import Json, Root, Server, Since, SweepId, backend_of, earliest
from orchestrator.cli.printing import print_answer, print_json, print_line
from orchestrator.client.answers import CostRow
from orchestrator.client.protocol import DAYS
from orchestrator.errors import BadInput, counted
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
        print_line("No users yet: `user add NAME` adds one.")
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


def notify(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[TARGET]",
            help="URL (`https://...`, `slack+https://...`), `mailto:...` or a command; `-` reads it from"
            " standard input.",
        ),
    ] = None,
    event: Annotated[
        list[str] | None,
        typer.Option("--event", help="Event to send, such as `best` or `ended`; repeatable. [default: all]"),
    ] = None,
    name: Annotated[
        str,
        typer.Option(help="Send only about sweeps whose file has this name in `notify:`."),
    ] = "",
    remove: Annotated[
        int | None, typer.Option("--remove", metavar="NUMBER", help="Remove a target by its number.")
    ] = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Set where the service sends notifications about your sweeps, and list the targets.

    Example:

        sweep notify mailto:ada@example.org --event ended --event stuck
    """
    backend = backend_of(server, root)
    if target is not None and remove is not None:
        raise BadInput("--remove", "must be given without a target", target[:80], "Leave one of them out.")
    if target is not None:
        given = sys.stdin.readline().strip() if target == "-" else target
        rows = backend.add_notice(given, tuple(event or ()), name)
    else:
        rows = backend.notices() if remove is None else backend.remove_notice(remove)
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    for row in rows:
        of = f"sweeps whose file names {row.name}" if row.name else ", ".join(row.events) or "all events"
        print_line(f"{row.number}  {row.target}  {of}")
    if not rows:
        print_line("No targets yet: `sweep notify mailto:you@example.org` adds one.")


def cost(
    prices: Annotated[
        Path | None,
        typer.Option(
            "--prices",
            metavar="FILE",
            help="YAML file with the price of a GPU-hour by device, and of a core-hour as `CPU`.",
        ),
    ] = None,
    since: Since = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Show the hours that sweeps have used, by owner, sweep and device, with their cost if prices are given.

    Example:

        sweep cost --prices prices.yaml --since 7d
    """
    rows = backend_of(server, root).cost(prices, since=earliest(since))
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    if not rows:
        print_line("No sweep has used any hours.")
        return
    table = Table("owner", "sweep", "device", box=None, pad_edge=False)
    for column in ("trial-hours", "core-hours", "GPU-hours", *([] if prices is None else ["cost"])):
        table.add_column(column, justify="right")
    for owner in dict.fromkeys(row.owner for row in rows):
        own = [row for row in rows if row.owner == owner]
        for row in own:
            table.add_row(owner or "–", row.sweep, row.device, *_amounts([row]))
        if len(own) > 1:
            table.add_row(owner or "–", "all", "", *_amounts(own), style="bold")
    Console().print(table)


def _amounts(rows: Sequence[CostRow]) -> list[str]:
    """Return the sums of the hours, and of the costs if there are prices."""
    hours = (sum(getattr(row, name) for row in rows) for name in ("trial_hours", "core_hours", "gpu_hours"))
    costs = [row.cost for row in rows if row.cost is not None]
    return [*(f"{each:.2f}" for each in hours), *([f"{sum(costs):.2f}"] if costs else [])]
