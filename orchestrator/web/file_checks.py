"""Checks of search-space files from HTTP, replays and SQL, in processes with limits of time and memory.

A search-space file from HTTP contains no paths, addresses or code. Plugins of other installed packages, whose
code would run as the service, are refused unless the service allows them, and so are absurd sizes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator import process_secrets
from orchestrator.api.loaded_sweep import LoadedSweep
from orchestrator.client.answers import PlannedSweep, QueryAnswer, ReplayReport
from orchestrator.client.http import decoded
from orchestrator.config import from_document
from orchestrator.errors import BadInput, TooManyRequests, from_documents, to_document
from orchestrator.ledger.connect import database_file
from orchestrator.web import limited_process
from orchestrator.web.app_state import AppState
from orchestrator.web.http_errors import RefusalParts

_MODULE = limited_process.__name__

WAIT_SECONDS = 60.0
"""Longest time that a check waits in the queue."""

_OUT_OF_LIMITS = frozenset({-signal.SIGXCPU, -signal.SIGKILL})


@dataclass(frozen=True)
class SentFile:
    """Search-space file from HTTP.

    Attributes:
        name: Name of the sweep.
        text: Text of the file.
        profile: Profile, as in `Sweep.load`.
        overrides: Changes to the file, as in `Sweep.load`.
        new: Whether to run another sweep of the same file.
    """

    name: str
    text: str
    profile: str | None = "auto"
    overrides: tuple[str, ...] = ()
    new: bool = False


@dataclass(frozen=True)
class Validated:
    """Plan of a file, or its mistakes."""

    refusals: Sequence[RefusalParts]
    plan: PlannedSweep | None


def checked_sweep(app: AppState, sent: SentFile, owner: str) -> tuple[LoadedSweep, Sequence[str]]:
    """Return the sweep of a file, and warnings for its owner.

    Raises:
        BadInput: The file is wrong, or exceeds a limit.
        NotAllowed: The file uses a plugin or code that the service does not allow.
    """
    answer = _checked(app, sent, owner, sizes=None)
    if "refusals" in answer:
        raise from_documents(answer["refusals"])
    specification = from_document(answer["document"], sent.text)
    sweep = LoadedSweep.of(specification, app.workspace, automatic=sent.profile == "auto", new=sent.new)
    return sweep, answer["warnings"]


def validated(app: AppState, sent: SentFile, owner: str, *, sizes: bool) -> Validated:
    """Return the plan of a file, or its mistakes; `sizes` counts its networks, which takes seconds."""
    try:
        answer = _checked(app, sent, owner, sizes=sizes)
    except BadInput as refusal:
        return Validated([RefusalParts(**to_document(refusal))], None)
    if "refusals" in answer:
        return Validated([RefusalParts(**parts) for parts in answer["refusals"]], None)
    plan = answer["plan"]
    return Validated([], PlannedSweep(**plan) if plan else None)


def replayed(
    app: AppState, user: str, sweep_id: str, schedulers: Sequence[str], workers: Sequence[int], draws: int
) -> ReplayReport:
    """Return the answer of `Backend.replay`.

    Args:
        app: State of the server.
        user: Name of the user.
        sweep_id: ID of the sweep.
        schedulers: Schedulers.
        workers: Numbers of trials that run at a time.
        draws: Number of replays.

    Raises:
        BadInput: A scheduler is wrong, no trial has ended, or a limit is exceeded.
        TooManyRequests: Too many file checks and replays of the user are waiting.
    """
    given = {"replay": sweep_id, "schedulers": schedulers, "workers": workers, "draws": draws}
    remedy = "Name fewer schedulers or workers, or replay it on the machine of the service."
    answer = _limited(app, given, user, _over_limit(app, "replay", remedy))
    if "refusals" in answer:
        raise from_documents(answer["refusals"])
    return decoded(ReplayReport, answer["report"])


def queried(app: AppState, user: str, query: str, rows: int) -> QueryAnswer:
    """Return the answer of `Backend.sql`.

    Args:
        app: State of the server.
        user: Name of the user.
        query: The statement.
        rows: Largest number of rows.

    Raises:
        BadInput: The query is wrong, or exceeds a limit.
        TooManyRequests: Too many queries, file checks and replays of the user are waiting.
    """
    remedy = "Select fewer rows, or add conditions."
    with app.ledger() as ledger:  # refuses a ledger that cannot be opened
        file = str(database_file(ledger.address)) if ledger.is_file else None
    given = {"sql": query, "rows": rows, "file": file}
    answer = _limited(app, given, user, _over_limit(app, "query", remedy))
    if "refusals" in answer:
        raise from_documents(answer["refusals"])
    return decoded(QueryAnswer, answer["answer"])


def _checked(app: AppState, sent: SentFile, owner: str, *, sizes: bool | None) -> Mapping[str, Any]:
    """Return the answer of `limited_process` to a file; without a plan if `sizes` is None."""
    given = {**vars(sent), "plugins": app.plugins, "owner": owner, "sizes": sizes}
    remedy = "Search fewer values, or nest them less."
    return _limited(app, given, owner, _over_limit(app, f"{sent.name}.yaml", remedy))


def _limited(app: AppState, request: Mapping[str, Any], user: str, over_limit: BadInput) -> Mapping[str, Any]:
    """Return the answer of `limited_process` to a request, or raise `over_limit` if it exceeds a limit."""
    given = {
        **request,
        "root": str(app.workspace.paths.root),
        "data": str(app.workspace.data),
        "limits": asdict(app.check_limits),
    }
    with app.checks.turn(user, WAIT_SECONDS) as granted:
        if not granted:
            must = "cannot start, because other file checks and replays are running"
            raise TooManyRequests("checks", must, "", "Wait a minute.")
        try:
            done = process_secrets.run_module(
                _MODULE,
                environment={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                given=given,
                timeout=app.check_limits.seconds,
            )
        except subprocess.TimeoutExpired:
            raise over_limit from None
    if done.returncode in _OUT_OF_LIMITS or "MemoryError" in done.stderr:
        raise over_limit
    if done.returncode != 0:
        raise RuntimeError(f"checking {over_limit.where} failed:\n{done.stderr}")
    answer: Mapping[str, Any] = json.loads(done.stdout)
    if "exhausted" in answer:
        raise over_limit
    return answer


def _over_limit(app: AppState, where: str, remedy: str) -> BadInput:
    limits = app.check_limits
    memory = limits.memory_bytes / 1024**3
    must = f"must take at most {limits.cpu_seconds} s of processor time and {memory:g} GiB to check"
    return BadInput(where, must, "more", remedy)
