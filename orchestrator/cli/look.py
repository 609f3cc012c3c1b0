"""Verbs that show sweeps, trials and the queue; they import nothing that takes seconds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from importlib import import_module
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator import output
from orchestrator.cli.options import (
    Json,
    Plain,
    Root,
    Server,
    Since,
    TrialName,
    backend_of,
    earliest,
    trial_name,
)
from orchestrator.cli.printing import (
    best_line,
    deliverer,
    note_lines,
    print_json,
    print_line,
    print_sweeps,
    settings_line,
    undelivered,
)
from orchestrator.driver.log import describe
from orchestrator.errors import BadInput, counted
from orchestrator.ledger.sweeps.records import sweep_id_of
from orchestrator.output import write, write_raw
from orchestrator.placeholders import plain
from orchestrator.report.words import brief, duration, gibibytes, number, numbers, used
from orchestrator.storage.paths import DEFAULT_ROOT

if TYPE_CHECKING:
    from orchestrator.client.answers import DiskUse, LogPart, QueuedSweep
    from orchestrator.client.statuses import DetailedStatus

_LOOK_SECONDS = 2.0
_HEADER = ("", "owner", "class", "share", "running", "wanted", "starts")
_OWNER = 16
_INDENT = " " * 6


def list_sweeps(
    tag: Annotated[str | None, typer.Option("--tag", help="Only sweeps with this tag.")] = None,
    task: Annotated[str | None, typer.Option("--task", help="Only sweeps of this task.")] = None,
    since: Since = None,
    archived: Annotated[
        bool, typer.Option("--archived", help="Archived and deleted sweeps instead.")
    ] = False,
    disk: Annotated[bool, typer.Option("--disk", help="Show the space of each sweep and owner.")] = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """List the sweeps with their states, their tasks and their trials by state.

    Example:

        sweep list --tag baseline --since 7d
        sweep list --disk
    """
    backend = backend_of(server, root)
    if disk:
        _print_disk(backend.disk(), as_json=as_json)
        return
    listed = backend.sweeps(tag=tag, task=task, since=earliest(since), archived=archived)
    if as_json:
        print_json([asdict(entry) for entry in listed])
        return
    print_sweeps(listed)
    for entry in listed:
        if entry.reason and entry.state in ("PARKED", "FAILED", "PAUSED", "COMPLETE"):
            print_line(f"{entry.id}: {entry.state}, because: {entry.reason}")
        if entry.waiting_for_mlflow and entry.driver is None:
            print_line(f"{entry.id}: {undelivered(entry.waiting_for_mlflow, deliverer(entry.id))}")


def _print_disk(uses: Sequence[DiskUse], *, as_json: bool) -> None:
    """Print the space of each sweep, then that of each owner, the largest first."""
    if as_json:
        print_json([asdict(use) for use in uses])
        return
    for use in uses:
        print_line(f"{gibibytes(use.bytes)}  {use.sweep}  {use.owner or ''}  {use.shelf or ''}".rstrip())
    owned: Counter[str] = Counter()
    for use in uses:
        owned[use.owner or "without an owner"] += use.bytes
    for owner, count in owned.most_common():
        print_line(f"{gibibytes(count)}  in all: {owner}")


def status(
    sweep: Annotated[
        str | None,
        typer.Argument(
            metavar="[SWEEP]", help="ID of a sweep, or the beginning of it. [default: the newest]"
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until the sweep ends.")] = False,
    plain: Plain = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Show the state of a sweep: its driver, its trials by state, the best trial so far.

    Example:

        sweep status retrieval --watch
    """
    backend = backend_of(server, root)
    now = backend.status(sweep)
    if watch and not as_json:
        # The live display imports as much of rich as all other verbs that look import in all.
        live_view = import_module("orchestrator.cli.live_view")
        with live_view.shown_live(lambda: backend.live(now.id), plain=plain) as show:
            while show is not None and now.driver is not None:
                time.sleep(_LOOK_SECONDS)
                now = backend.status(now.id)
    while True:
        if as_json:
            print_json(asdict(now))
        else:
            _print_status(now)
        if not watch or now.driver is None:
            return
        time.sleep(_LOOK_SECONDS)
        now = backend.status(now.id)


def _print_status(now: DetailedStatus) -> None:
    reason = f" ({now.reason})" if now.reason else ""
    print_line(f"{now.id}: {now.state}{reason}")
    if now.driver:
        print_line(f"  driven by {now.driver}")
    # The first line gives the reason, and the next one the best trial.
    progress = replace(now.progress, reason=None, best_value=None)
    print_line(f"  {describe(progress, now.metric or '')}")
    if (best := best_line(now)) is not None:
        print_line(f"  {best}")
    if now.best is not None and now.best.params:
        print_line(f"    {settings_line(now.best.params)}")
    if now.chosen is not None and now.best is not None and now.chosen.key != now.best.key:
        print_line(f"  best of those that have ended {number(now.chosen.value)} (trial {now.chosen.label})")
    if now.cost is not None:
        print_line(f"  used: {used(now.cost)}")
    if now.on_front is not None:
        trials = counted(now.on_front, "trial is", "trials are")
        print_line(f"  {trials} on the Pareto front; the file prefers no objective, so none is the best")
    for group in now.failed:
        place = "" if group.file is None else f" ({group.file}, line {group.line})"
        trials = f"trial {group.trials[0]}" if group.count == 1 else f"{group.count} trials"
        print_line(f"  failed, {trials}: {group.message}{place}")
        print_line(f"    {group.next_step}")
    if now.waiting_for_mlflow:
        how = "its driver delivers them" if now.driver else deliverer(now.id)
        print_line(f"  {undelivered(now.waiting_for_mlflow, how)}")
    if now.note is not None:
        for line in note_lines(now.note):
            print_line(f"  {line}")
    if not now.driver and now.state == "INTERRUPTED":
        print_line(f"  resume it with: python -m orchestrator.sweep resume {now.id}")


def show(
    trial: TrialName,
    every: Annotated[
        bool, typer.Option("--all", help="Print every report, not only the first, the best and the last.")
    ] = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Show a trial: hyperparameters, attempts, reports, checkpoints.

    Example:

        sweep show 7
    """
    backend = backend_of(server, root)
    found = backend.trial(trial_name(trial))
    reports, row = backend.reports(found.trial.key), found.trial
    if as_json:
        print_json({**asdict(found), "reports": [asdict(report) for report in reports]})
        return
    cause = f" ({row.cause})" if row.cause else ""
    print_line(f"{row.key}: {row.state}{cause}, step {row.step} of {row.total_steps}")
    for name, value in row.params.items():
        print_line(f"  {name} = {plain(value)}")
    if found.exempt_by is not None:
        print_line(f"Exempt from early stopping, requested by {found.exempt_by}.")
    if found.note is not None:
        for line in note_lines(found.note):
            print_line(f"  {line}")
    print_line(f"  {found.resources}")
    if found.repeats is not None:
        similar = f": {found.similarity}" if found.similarity else ""
        print_line(f"  repeats a setting of {found.repeats}{similar}")
    if found.by_hand is not None:
        print_line(f"  by hand: {found.by_hand}")
    front = backend.pareto(sweep_id_of(row.key))
    if len(front.objectives) > 1:
        own = next((trial.values for trial in front.trials if trial.key == row.key), None)
        values = "" if own is None else ", ".join(f"{name} {brief(value)}" for name, value in own.items())
        print_line(f"  on the Pareto front: {values}" if values else "  not on the Pareto front")
    for attempt in found.attempts:
        node = f" on {attempt.node}" if attempt.node else ""
        print_line(f"  attempt {attempt.number}: {attempt.state}{node} {attempt.cause or ''}".rstrip())
    for line in found.code_changes:
        print_line(f"  {line}")
    hidden = (found.last_report.metrics.keys() if found.last_report else set()) - set(found.shown_metrics)
    names = dict.fromkeys(name for report in reports for name in report.metrics if name not in hidden)
    curves = {name: numbers([report.metrics.get(name) for report in reports], brief) for name in names}
    kept = {saved.step for saved in found.checkpoints if saved.kind == "best"}
    best = row.best_step if row.best_step is not None else max(kept, default=None)  # None until it has ended
    shown = 0
    for index, report in enumerate(reports):
        if every or index in (0, len(reports) - 1) or report.step in {best, *kept}:
            metrics = ", ".join(f"{name} {curves[name][index]}" for name in names if name in report.metrics)
            mark = " (best)" if report.step == best else ""
            print_line(f"  step {report.step}{mark}: {metrics}")
            shown += 1
    if shown < len(reports):
        print_line(f"  {counted(len(reports) - shown, 'more report')}: `sweep show {row.key} --all`")
    for saved in found.checkpoints:
        kind = "best before" if saved.kind == "best" and saved.step != best else saved.kind
        print_line(f"  checkpoint ({kind}): {saved.path}")


def logs(
    trial: Annotated[
        list[str],
        typer.Argument(
            metavar="TRIAL",
            help="Key of a trial, or its number, as for `show`; or a sweep, for the log of its drivers.",
        ),
    ],
    raw: Annotated[
        bool, typer.Option("--raw", help="Keep control characters; only to a file or a pipe.")
    ] = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Print the log of a trial with tracebacks, or the log of a sweep's drivers.

    For attempts on other machines, the events of the ledger are printed. Control characters are escaped.

    Example:

        sweep logs retrieval 7
    """
    parts: list[str] = []
    print_text = parts.append if as_json else write_raw if raw else write
    backend = backend_of(server, root)
    name = trial_name(trial)
    try:
        found = backend.trial(name)
    except BadInput as refusal:
        try:
            first = backend.log(name, 0)
        except BadInput:
            raise refusal from None
        if not first.size and not as_json:
            print_line("Its drivers have written no log: one that runs in a terminal prints there.")
        _print_log(lambda start: backend.log(name, start), first, print_text)
        if as_json:
            print_json({"text": "".join(parts), "elsewhere": [], "nodes": []})
        return
    key = found.trial.key
    _print_log(lambda start: backend.trial_log(key, start), backend.trial_log(key), print_text)
    if as_json:
        print_json({"text": "".join(parts), "elsewhere": found.elsewhere, "nodes": found.nodes})
        return
    for line in found.elsewhere:
        print_line(line)
    if found.nodes:
        nodes = ", ".join(found.nodes)
        line = f"The attempts on {nodes} come from the ledger; the logs on those machines hold tracebacks."
        output.Console(stderr=True, soft_wrap=True).print(line, markup=False)


def _print_log(read: Callable[[int], LogPart], part: LogPart, print_text: Callable[[str], None]) -> None:
    """Print a log from its first part on.

    Args:
        read: Function that returns the part at a position in bytes.
        part: First part.
        print_text: Function that prints a text.
    """
    print_text(part.text)
    while part.end < part.size:
        part = read(part.end)
        print_text(part.text)


def queue(root: Root = DEFAULT_ROOT, as_json: Json = False, server: Server = None) -> None:
    """Show which sweeps run and which wait: position, share, running trials, expected start, and why.

    Example:

        sweep queue
    """
    entries = backend_of(server, root).queue()
    if as_json:
        print_json([asdict(entry) for entry in entries])
        return
    if not entries:
        print_line("No sweep is running or queued.")
        return
    for line in table(entries, output.Console().width, time.time()):
        print_line(line)


def table(entries: Sequence[QueuedSweep], width: int, now: float) -> list[str]:
    """Return the lines of the queue: the ID, the figures and the reason for waiting of every sweep.

    Args:
        entries: Entries of the queue.
        width: Columns of the terminal; from 72 on, no line is wider.
        now: Seconds since the epoch.
    """
    lines = [_row(*_HEADER)]
    for entry in entries:
        position = str(entry.position) if entry.position else ""
        amounts = (str(entry.share), str(entry.running), str(entry.wanted))
        figures = _row(position, entry.owner, entry.priority_class, *amounts, _start(entry, now))
        why = wrap(entry.why or "", max(20, width - len(_INDENT)))
        lines += [*wrap(entry.sweep, width), figures, *(f"{_INDENT}{part}" for part in why)]
    return lines


def _start(entry: QueuedSweep, now: float) -> str:
    if entry.position is None:
        return ""
    if entry.expected_start is None:
        return "unknown"
    return f"in {duration(max(0.0, entry.expected_start - now))}"


def _row(position: str, owner: str, priority_class: str, *figures: str) -> str:
    cut = owner if len(owner) <= _OWNER else f"{owner[: _OWNER - 1]}…"
    share, running, wanted, start = figures
    named = f"{position:>4}  {cut:<{_OWNER}}  {priority_class:<6}"
    return f"{named}  {share:>6}  {running:>7}  {wanted:>6}  {start}".rstrip()
