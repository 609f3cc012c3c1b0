"""Checks of search-space files from HTTP, each in a process with limits of time and memory.

A search-space file from HTTP contains no paths, addresses or code. Plugins of other installed packages, whose
code would run as the service, are refused unless the service allows them, and so are absurd sizes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator import process_secrets
from orchestrator.api.local_sweep import Sweep
from orchestrator.client.answers import PlannedSweep
from orchestrator.config import from_document
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.errors import BadInput
from orchestrator.web import check_process
from orchestrator.web.app_state import AppState
from orchestrator.web.http_errors import NotAllowed, RefusalParts, TooManyRequests

_MODULE = check_process.__name__

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


def checked_sweep(app: AppState, sent: SentFile, owner: str) -> Sweep:
    """Return the sweep of a file.

    Raises:
        BadInput: The file is wrong, or exceeds a limit.
        NotAllowed: The file uses a plugin or code that the service does not allow.
    """
    answer = _checked(app, sent, owner, sizes=None)
    if "refusals" in answer:
        if answer["allowed"]:
            raise BadInput.of_all(answer["refusals"])
        raise NotAllowed(**answer["refusals"][0])
    specification = from_document(answer["document"], sent.text)
    return Sweep.of(specification, app.workspace, automatic=sent.profile == "auto", new=sent.new)


def validated(app: AppState, sent: SentFile, owner: str, *, sizes: bool) -> Validated:
    """Return the plan of a file, or its mistakes; `sizes` counts its networks, which takes seconds."""
    try:
        answer = _checked(app, sent, owner, sizes=sizes)
    except BadInput as refusal:
        return Validated([RefusalParts(**refusal.parts())], None)
    if "refusals" in answer:
        return Validated([RefusalParts(**parts) for parts in answer["refusals"]], None)
    plan = answer["plan"]
    return Validated([], PlannedSweep(**plan) if plan else None)


def check_own(app: AppState, specification: SweepConfig, owner: str) -> None:
    """Check that the service allows the code of a sweep of the ledger.

    Raises:
        NotAllowed: Its code would run as the service.
        BadInput: Its code must run as its owner, and cannot.
    """
    try:
        check_process.check_own(specification, owner, plugins=app.plugins)
    except check_process.ForeignCode as error:
        raise NotAllowed(**error.refusal.parts()) from None


def _checked(app: AppState, sent: SentFile, owner: str, *, sizes: bool | None) -> Mapping[str, Any]:
    """Return the answer of `check_process`; no plan is made if `sizes` is None."""
    given = {
        **vars(sent),
        "root": str(app.workspace.paths.root),
        "data": str(app.workspace.data),
        "plugins": app.plugins,
        "owner": owner,
        "sizes": sizes,
        "limits": asdict(app.check_limits),
    }
    environment, secrets = process_secrets.parted({**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    with app.checks.turn(owner, WAIT_SECONDS) as granted:
        if not granted:
            must = f"must wait, because other files of {owner} or of others are being checked"
            raise TooManyRequests("checks", must, "", "Wait a minute.")
        try:
            done = subprocess.run(
                [sys.executable, "-m", _MODULE],
                input=secrets.decode() + json.dumps(given),
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=app.check_limits.seconds,
            )
        except subprocess.TimeoutExpired:
            raise _over_limit(app, sent) from None
    if done.returncode in _OUT_OF_LIMITS or "MemoryError" in done.stderr:
        raise _over_limit(app, sent)
    if done.returncode != 0:
        raise RuntimeError(f"checking {sent.name} failed:\n{done.stderr}")
    answer: Mapping[str, Any] = json.loads(done.stdout)
    if "exhausted" in answer:
        raise _over_limit(app, sent)
    return answer


def _over_limit(app: AppState, sent: SentFile) -> BadInput:
    limits = app.check_limits
    memory = limits.memory_bytes / 1024**3
    must = f"must take at most {limits.cpu_seconds} s of processor time and {memory:g} GiB to check"
    return BadInput(f"{sent.name}.yaml", must, "more", "Search fewer values, or nest them less.")
