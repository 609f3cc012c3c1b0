"""The verbs with `--server`: the same sweeps, reached over HTTP."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.api.following import exit_code
from orchestrator.client.http import HttpBackend
from orchestrator.api.users import AuditEntry, User
from orchestrator.api.workspace import Workspace
from orchestrator.cli.display import print_json, print_line
from orchestrator.cli.listing import ListedSweep, print_sweeps
from orchestrator.cli.live import shown_live
from orchestrator.counts import counted
from orchestrator.errors import BadInput, Exit
from orchestrator.output import write
from orchestrator.report.words import brief

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="Address of a service that is reached over HTTP; SWEEP_URL if left out. SWEEP_TOKEN holds the"
        " token.",
    ),
]

Key = Annotated[
    str | None,
    typer.Option(
        "--key", help="Identifies the request to `--server`: repeating it with the same key adds nothing."
    ),
]

_LOOK_SECONDS = 2.0


def submit(
    server: str,
    file: Path,
    *,
    profile: str | None,
    overrides: Sequence[str],
    new: bool,
    key: str | None,
) -> int:
    """Submit a file, and print the id of its sweep."""
    service = HttpBackend.at(server)
    sweep = service.submit(file, profile=profile or "auto", overrides=overrides, new=new, key=key)
    print_line(sweep.id)
    return Exit.COMPLETE


def run(
    server: str, file: Path, *, profile: str | None, overrides: Sequence[str], new: bool, plain: bool
) -> int:
    """Submit a file and follow its sweep."""
    service = HttpBackend.at(server)
    sweep = service.submit(file, profile=profile or "auto", overrides=overrides, new=new)
    print_line(f"{sweep.id} is submitted.")
    return follow(server, sweep.id, plain=plain)


def list_sweeps(server: str, *, as_json: bool) -> None:
    """Print every sweep."""
    listed = HttpBackend.at(server).sweeps()
    if as_json:
        print_json(listed)
        return
    names = [each.name for each in fields(ListedSweep)]
    print_sweeps([ListedSweep(**{name: entry[name] for name in names}) for entry in listed])


def status(server: str, sweep: str | None, *, watch: bool, plain: bool, as_json: bool) -> None:
    """Print the state of a sweep, or of the newest one."""
    service = HttpBackend.at(server)
    found = service.sweep(sweep or _newest(service))
    if watch and not as_json:
        with shown_live(found.live, plain=plain) as show:
            while show is not None and found.status()["driver"] is not None:
                time.sleep(_LOOK_SECONDS)
    while True:
        now = found.status()
        if as_json:
            print_json(now)
        else:
            _print_status(now)
        if not watch or now["driver"] is None:
            return
        time.sleep(_LOOK_SECONDS)


def _print_status(now: Mapping[str, Any]) -> None:
    reason = f" ({now['reason']})" if now["reason"] else ""
    print_line(f"{now['id']}: {now['state']}{reason}")
    progress = now["progress"]
    best = f", best {now['metric']} {brief(progress['best_value'], 6)}" if progress["best_key"] else ""
    print_line(f"  {_counts(progress['states']) or 'no trials'} of {progress['wanted']}{best}")
    for cause, count in now["failures"].items():
        print_line(f"  failed {counted(count, 'time')}: {cause}")


def stop(server: str, sweep: str) -> None:
    """Ask a sweep to end."""
    HttpBackend.at(server).sweep(sweep).stop()
    print_line(f"{sweep}: is asked to save its trials and end.")


def pause(server: str, sweep: str) -> None:
    """Pause a sweep."""
    HttpBackend.at(server).sweep(sweep).pause()
    print_line(f"{sweep}: is asked to save its trials and wait.")


def resume(server: str, sweep: str, budget: Mapping[str, str], key: str | None) -> int:
    """Resume a sweep that was paused or stopped, or go on with one that has ended with a larger budget."""
    found = HttpBackend.at(server).sweep(sweep)
    if budget:
        found.extend(key=key, **budget)
    elif key is not None:
        raise BadInput("--key", "must be left out without --extend", key, "Resuming twice changes nothing.")
    else:
        found.resume()
    print_line(f"{sweep}: goes on.")
    return Exit.COMPLETE


def follow(server: str, sweep: str, *, plain: bool) -> int:
    """Show a sweep, and print what its drivers print until it has ended."""
    found = HttpBackend.at(server).sweep(sweep)
    try:
        with shown_live(found.live, plain=plain) as show:
            state = found.follow(show or write)
    except KeyboardInterrupt:
        print_line(f"{sweep} is still running.")
        return Exit.STILL_RUNNING
    return exit_code(state, failed=bool(found.status()["failures"]))


def queue(server: str) -> Sequence[Mapping[str, Any]]:
    """Return what runs and what waits."""
    return HttpBackend.at(server).queue()


def move(server: str, sweep: str, priority_class: str, weight: float) -> None:
    """Set the class of a sweep."""
    HttpBackend.at(server).sweep(sweep).move(priority_class, weight=weight)
    print_line(f"{sweep}: class {priority_class}, weight {weight:g}")


def release(server: str, sweep: str) -> None:
    """Queue a parked sweep again."""
    HttpBackend.at(server).sweep(sweep).release()
    print_line(f"{sweep}: QUEUED")


def retry_failed(server: str, sweep: str, key: str | None) -> int:
    """Run the failed trials of a sweep again."""
    HttpBackend.at(server).sweep(sweep).retry(key=key)
    print_line(f"{sweep}: QUEUED")
    return Exit.COMPLETE


def quota(
    server: str, owner: str, changes: Mapping[str, float], *, new: bool
) -> tuple[float, float, float | None, float, int | None]:
    """Change what is given of an owner's weight and quotas.

    Returns:
        Weight, share, GPU-hours and their use, and sweeps at once.
    """
    service = HttpBackend.at(server)
    if changes:
        service.set_quota(owner, new=new, **changes)
    row = service.quota(owner)
    return row["weight"], row["share"], row["gpu_hours"], row["used_gpu_hours"], row["sweeps"]


def users(server: str) -> list[User]:
    """Return the users of the service."""
    return [_user(row) for row in HttpBackend.at(server).users()]


def add_user(server: str, name: str, role: str, days: float) -> tuple[User, str]:
    """Add a user; return the user and the token."""
    added = HttpBackend.at(server).add_user(name, role, days=None if days == math.inf else days)
    return _user(added), added["token"]


def revoke_user(server: str, name: str) -> User:
    """Revoke the token of a user; return the user."""
    return _user(HttpBackend.at(server).revoke_user(name))


def audit_log(server: str, limit: int) -> list[AuditEntry]:
    """Return which user asked for which change, the newest first."""
    return [
        AuditEntry(**{each.name: row[each.name] for each in fields(AuditEntry)})
        for row in HttpBackend.at(server).audit_log(limit)
    ]


def show(server: str, trial: str, *, as_json: bool) -> None:
    """Print everything that the ledger of the service knows of a trial."""
    found = HttpBackend.at(server).trial(trial)
    if as_json:
        print_json(found)
        return
    row = found["trial"]
    cause = f" ({row['cause']})" if row["cause"] else ""
    print_line(f"{row['key']}: {row['state']}{cause}, step {row['step']} of {row['total_steps']}")
    for name, value in row["params"].items():
        print_line(f"  {name} = {value}")
    for attempt in found["attempts"]:
        node = f" on {attempt['node']}" if attempt["node"] else ""
        print_line(
            f"  attempt {attempt['number']}: {attempt['state']}{node} {attempt['cause'] or ''}".rstrip()
        )
    last = found["last_report"]
    if last is not None:
        metrics = ", ".join(f"{name} {brief(last['metrics'][name])}" for name in found["shown_metrics"])
        print_line(f"  step {last['step']}: {metrics} (the last of {counted(found['reports'], 'report')})")
    for saved in found["checkpoints"]:
        print_line(f"  checkpoint ({saved['kind']}): {saved['path']}")


def report(server: str, sweep: str, output: Path | None) -> None:
    """Write the report of a sweep to a file, by default where that of a sweep of this machine is written."""
    file = output
    if file is None:
        file = Workspace.at().paths.report(sweep) / "report.html"
        file.parent.mkdir(parents=True, exist_ok=True)
    HttpBackend.at(server).sweep(sweep).report(file)
    print_line(f"report: {file}")


def logs(server: str, trial: str, show: Callable[[str], None]) -> None:
    """Show the log of a trial's workers on the machine of the service."""
    HttpBackend.at(server).trial_log(trial, show)


def _newest(service: HttpBackend) -> str:
    listed = service.sweeps()
    if not listed:
        raise BadInput(service.url, "must have a sweep", "none", "Submit one first.")
    return str(listed[0]["id"])


def _user(row: Mapping[str, Any]) -> User:
    return User(**{each.name: row[each.name] for each in fields(User)})


def _counts(trials: Mapping[str, Any]) -> str:
    return ", ".join(f"{count} {state.lower()}" for state, count in trials.items())
