"""Verbs that run, submit, resume, stop and follow a sweep, here or on a remote service."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli import live_view
from orchestrator.cli.options import (
    Json,
    Key,
    OneTrial,
    Plain,
    Root,
    Server,
    SweepId,
    backend_of,
    with_options,
)
from orchestrator.cli.printing import print_answer, print_json, print_line, print_warnings, submitted
from orchestrator.cli.run_options import (
    Extend,
    File,
    Overrides,
    Profile,
    Resume,
    RunOptions,
    Top,
)
from orchestrator.client.http import HttpBackend
from orchestrator.errors import BadInput, Exit, counted
from orchestrator.output import write
from orchestrator.placeholders import plain
from orchestrator.storage.paths import DEFAULT_ROOT

if TYPE_CHECKING:
    from orchestrator.cli.local_runs import LocalRuns


@with_options(options=RunOptions)
def run(
    file: File,
    profile: Profile = None,
    overrides: Overrides = None,
    extend: Extend = None,
    top: Top = None,
    new: Annotated[bool, typer.Option("--new", help="Start another sweep of the same file.")] = False,
    resume: Resume = False,
    server: Server = None,
    *,
    options: RunOptions,
) -> int:
    """Run the sweep of a search-space file, or resume it where it stopped.

    If a service runs for the root, or SWEEP_SERVER or `--server` names one, the sweep is submitted to it and
    followed. Ctrl-C then only detaches.

    Exit codes: 0 complete, 2 bad input, 3 some trials failed, 4 interrupted and resumable, 5 still running,
    6 driven by another process.

    Example:

        sweep run search_spaces/listops.yaml --set budget.trials=4
    """
    if server is not None:
        if extend is not None or top is not None:
            remedy = "Use `resume SWEEP --extend` for a sweep that has ended."
            raise BadInput(
                "--extend", "must be left out of `run` with --server", extend or f"--top {top}", remedy
            )
        backend, chosen = HttpBackend(server), profile or "auto"
        answer = backend.submit(file, profile=chosen, overrides=overrides or (), new=new)
        print_warnings(answer.warnings)
        write(submitted(answer.id, is_added=answer.added))
        return live_view.follow(backend, answer.id, plain=options.plain)
    return _local(options).run(file, profile, overrides, _budget(extend, top), new=new, resume=resume)


@with_options(options=RunOptions)
def submit(
    file: File,
    profile: Profile = None,
    overrides: Overrides = None,
    new: Annotated[bool, typer.Option("--new", help="Submit another sweep of the same file.")] = False,
    resume: Resume = False,
    key: Key = None,
    as_json: Json = False,
    server: Server = None,
    *,
    options: RunOptions,
) -> int:
    """Submit the sweep of a search-space file and return immediately.

    Without a running service, the sweep waits until one is started.

    Example:

        sweep submit search_spaces/listops.yaml --key listops-monday
    """
    if server is not None:
        chosen = profile or "auto"
        backend = HttpBackend(server)
        sent = backend.submit(file, profile=chosen, overrides=overrides or (), new=new, key=key)
        print_warnings(sent.warnings)
        sweep_id, is_added, has_service = sent.id, sent.added, True
    else:
        sweep_id, is_added, has_service = _local(options).submit(
            file, profile, overrides, new=new, resume=resume, key=key
        )
    if as_json:
        print_json({"id": sweep_id, "added": is_added})
        return Exit.COMPLETE
    print_line(sweep_id)
    if not has_service:
        print_line("No service is running for this root: start one with `sweep serve`.")
    return Exit.COMPLETE


@with_options(options=RunOptions)
def resume(
    sweep: SweepId,
    trial: OneTrial = None,
    extend: Extend = None,
    top: Top = None,
    server: Server = None,
    key: Key = None,
    *,
    options: RunOptions,
) -> int:
    """Resume a stopped, parked or interrupted sweep without its file; with `--extend`, one that has ended.

    A sweep of a service is queued again and followed; Ctrl-C then only detaches. With the number of a trial,
    that trial is exempt from early stopping: it runs to its last step, also if it is paused.

    Example:

        sweep resume retrieval
        sweep resume retrieval 7
        sweep resume retrieval --extend trials=128
        sweep resume retrieval --extend steps=20000 --top 4
    """
    budget = _budget(extend, top)
    if trial is not None:
        if budget:
            remedy = "Leave out the trial, or the option."
            raise BadInput("--extend", "must be left out with the number of a trial", extend or "", remedy)
        _refuse_key(key, "with --extend")
        sweep_id = backend_of(server, options.root).resume(sweep, trial).id
        print_line(f"{sweep_id}-{trial}: runs to its last step; the scheduler does not stop it.")
        return Exit.COMPLETE
    if server is not None:
        backend = HttpBackend(server)
        if budget:
            sweep_id = backend.extend(sweep, key=key, **budget).id
        else:
            _refuse_key(key, "with --extend")
            sweep_id = backend.resume(sweep).id
        write(submitted(sweep_id, is_added=True))
        return live_view.follow(backend, sweep_id, plain=options.plain)
    _refuse_key(key, "with --server")
    return _local(options).resume(sweep, budget)


@with_options(options=RunOptions)
def retry_failed(sweep: SweepId, server: Server = None, key: Key = None, *, options: RunOptions) -> int:
    """Run the failed trials of a sweep again, each from its last checkpoint.

    On a remote service the sweep is queued again and followed; here it runs in this process.

    Example:

        sweep retry-failed retrieval
    """
    if server is not None:
        backend = HttpBackend(server)
        sweep_id = backend.retry(sweep, key=key).id
        write(submitted(sweep_id, is_added=True))
        return live_view.follow(backend, sweep_id, plain=options.plain)
    _refuse_key(key, "with --server")
    return _local(options).retry(sweep)


def stop(
    sweep: SweepId,
    trial: OneTrial = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Save every trial of a sweep and stop it until `resume`; or end one trial, in favour of the next one.

    Example:

        sweep stop retrieval
        sweep stop retrieval 7
    """
    stopped = backend_of(server, root).stop(sweep, trial)
    if stopped.trial is not None:
        when = "is saved and ends" if stopped.driver else "ends when the sweep continues"
        print_answer(stopped, f"{stopped.trial}: {when}; its place goes to the next trial.", as_json=as_json)
        return
    does = f"{stopped.driver} saves its trials and ends" if stopped.driver else "it is not started"
    print_answer(stopped, f"{stopped.id}: {does}.", as_json=as_json)


def try_setting(
    sweep: SweepId,
    values: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE...", help="Hyperparameters; a value is JSON or a plain word."),
    ],
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Ask an unfinished sweep to try a setting next; the sampler chooses what is left out.

    Example:

        sweep try retrieval learning_rate=1e-3 dropout=0
    """
    answer = backend_of(server, root).try_setting(sweep, _setting(values))
    shown = ", ".join(f"{name} {plain(value)}" for name, value in answer.params.items())
    after = f", after {counted(answer.before, 'other setting')}" if answer.before else ""
    print_answer(answer, f"{answer.id} tries {shown} next{after}.", as_json=as_json)


def follow(sweep: SweepId, root: Root = DEFAULT_ROOT, plain: Plain = False, server: Server = None) -> int:
    """Show a sweep and the output of its driver until it ends; Ctrl-C only detaches.

    Exit codes: those of the sweep, or 5 if it is still running.

    Example:

        sweep follow retrieval
    """
    return live_view.follow(backend_of(server, root), sweep, plain=plain)


def _local(options: RunOptions) -> LocalRuns:
    """Return the runner of sweeps on this machine, which is not imported with `--server`."""
    from orchestrator.cli.local_runs import LocalRuns

    return LocalRuns(options)


def _budget(extend: str | None, top: int | None) -> dict[str, str | int]:
    """Return the changes of the budget by key."""
    if extend is None:
        if top is not None:
            remedy = "For example --extend steps=20000 --top 4."
            raise BadInput("--top", "must come with --extend steps=N", str(top), remedy)
        return {}
    name, equals, value = extend.partition("=")
    if not equals or not name.isidentifier():
        raise BadInput("--extend", "must be KEY=VALUE", repr(extend), "For example --extend trials=128.")
    return {name: value} if top is None else {name: value, "top": top}


def _refuse_key(key: str | None, where: str) -> None:
    if key is not None:
        remedy = "Leave it out: repeating this command changes nothing."
        raise BadInput("--key", f"must be given {where} only", key, remedy)


def _setting(words: Sequence[str]) -> dict[str, Any]:
    """Return the setting that `name=value` words describe, such as `learning_rate=1e-3`.

    Raises:
        BadInput: A word has another form, or a name is given twice.
    """
    setting: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name or name in setting:
            must = "must be given once, as name=value"
            raise BadInput("try", must, repr(word)[:80], "For example learning_rate=1e-3.")
        try:
            setting[name] = json.loads(text)
        except (ValueError, RecursionError):
            setting[name] = text
    return setting
