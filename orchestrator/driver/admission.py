"""Admission of a sweep: its identity in the ledger, and the lease that allows this driver to run it."""

from __future__ import annotations

import getpass
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from orchestrator.config import from_document
from orchestrator.config.resolve import budget_in
from orchestrator.config.sweep_config import SweepConfig, identity
from orchestrator.driver import preflight
from orchestrator.driver.detached import DEADLINE_SECONDS, TRACKING_SECONDS
from orchestrator.driver.log import Observer
from orchestrator.driver.preflight import ON_THIS_MACHINE, Patience
from orchestrator.driver.shutdown import Shutdown
from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.shelf import check_not_deleted
from orchestrator.ledger.sweeps.index import begun, differences
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import FINISHED_SWEEP, SweepRecord
from orchestrator.ledger.sweeps.writer import SweepWriter
from orchestrator.machines.hardware import Hardware
from orchestrator.storage.paths import Paths

OWNER = "SWEEP_OWNER"
"""Environment variable: owner of the sweeps; by default, the user of this process."""


def current_owner() -> str:
    """Return the owner of the sweeps that this process runs.

    Raises:
        BadInput: The environment names no owner and the user of this process has no name.
    """
    try:
        return os.environ.get(OWNER) or getpass.getuser()
    except (OSError, KeyError):
        got = f"user {os.getuid()} without a name"
        raise BadInput("this process", "must have an owner for its sweeps", got, f"Set {OWNER}.") from None


@dataclass(frozen=True)
class Run:
    """One invocation of a sweep: the options beside its specification.

    Attributes:
        paths: Paths where everything is written.
        data: Folder of the data sets.
        hardware: Hardware that trials can use.
        known: Id of the sweep to resume, or None to find it by its file.
        new: Whether to start another sweep even if the ledger has one of this file.
        reopen: Keys of failed trials to run again.
        deadline: Longest time in seconds without progress or report of a running attempt.
        tracking_patience: Seconds to wait, at the end, for MLflow to accept pending records.
        wait: Time limits while no trial can start.
        unless_stopped: Whether a sweep that a person has stopped stays stopped.
        owner: Owner of the sweep, for its share of a cluster.
    """

    paths: Paths
    data: Path
    hardware: Hardware
    known: str | None = None
    new: bool = False
    reopen: tuple[str, ...] = ()
    deadline: float = DEADLINE_SECONDS
    tracking_patience: float = TRACKING_SECONDS
    wait: Patience = ON_THIS_MACHINE
    unless_stopped: bool = False
    owner: str = field(default_factory=current_owner)


DRIVER_OPTIONS: Mapping[str, Any] = {
    "deadline": Run.deadline,
    "tracking_patience": Run.tracking_patience,
    "wait": None,
}
"""Options of a submission for its driver, and their defaults."""

RETRY_FAILED = "retry_failed"
"""Option of a submission: whether the driver of a finished sweep runs its failed trials again."""


@dataclass(frozen=True)
class LeasedSweep:
    """A sweep that this driver may run, because it holds its lease.

    Attributes:
        sweep: Sweep under its id in the ledger.
        run: This invocation.
        ledger: Ledger of the sweep.
        lease: Lease of the sweep, held.
        observer: Observer of the sweep.
        shutdown: Shutdown of this process.
    """

    sweep: SweepConfig
    run: Run
    ledger: Ledger
    lease: Lease
    observer: Observer
    shutdown: Shutdown

    @property
    def writer(self) -> SweepWriter:
        """Writer of the sweep's rows."""
        return self.lease.writer


@contextmanager
def leased_sweep(
    sweep: SweepConfig, run: Run, observer: Observer, shutdown: Shutdown
) -> Iterator[LeasedSweep]:
    """Hold the lease of a sweep, after the preflight checks of its paths and checkpoints.

    A long wait for the lease is reported to the observer, and a lost lease ends the process.

    Example:

        with Shutdown() as shutdown, leased_sweep(sweep, run, Observer(), shutdown) as leased:
            leased.writer.set_sweep_state("RUNNING")

    Raises:
        BadInput: A path or the file is wrong, or checkpoints are missing.
        Busy: Another driver holds the sweep.
    """
    preflight.check_paths(run.paths)
    run.paths.create()
    ledger_url, say = run.paths.ledger_url, observer.say
    with closing(Ledger.open(ledger_url, reconnect_seconds=math.inf, notify=say)) as ledger:
        sweep = identify(sweep, ledger, known=run.known, new=run.new)
        preflight.check_paths(run.paths, sweep.id)
        lost = f"{sweep.id}: another driver has taken over, so this one leaves."
        with Lease(ledger, sweep.id, observer.say, lambda: shutdown.end(lost)) as lease:
            ledger.query(lambda connection: check_not_deleted(connection, sweep.id))
            preflight.check_checkpoints(run.paths, ledger, sweep.id)
            yield LeasedSweep(sweep, run, ledger, lease, observer, shutdown)


def identify(
    sweep: SweepConfig, ledger: Ledger, *, known: str | None = None, new: bool = False
) -> SweepConfig:
    """Return the sweep with the id under which the ledger has or will have it.

    The same file is the same sweep. A changed file is another sweep, which must not start by mistake while
    the sweep of the unchanged file is unfinished.

    Args:
        sweep: Sweep as in the file.
        ledger: Ledger of all sweeps.
        known: Id of the sweep to resume, which need not match the file, or None to find it by the file.
        new: Whether to start another sweep even if the ledger has one of this file.

    Raises:
        BadInput: The file differs from that of its unfinished sweep, or names a warm-start sweep that is
            missing or has another objective.
    """
    check_warm_start(sweep, ledger)
    if known is not None:
        return with_id(sweep, known)
    if new:
        return unused(sweep, ledger)
    latest = newest(sweep, ledger)
    if latest.recorded_id is None:
        _refuse_change(sweep, ledger)
    return latest


def newest(sweep: SweepConfig, ledger: Ledger, *, budget_is_given: bool = False) -> SweepConfig:
    """Return a sweep with the id of the newest record of its file, or unchanged if there is none.

    Its budget is the one to which it was extended, unless the budget in the file has changed since, or
    `budget_is_given` on a command line.
    """
    for record in _newest_first(ledger):
        if identity(record.document) == sweep.digest:
            found = sweep if budget_is_given else _with_budget(sweep, record)
            return with_id(found, record.id)
    return sweep


def _with_budget(sweep: SweepConfig, record: SweepRecord) -> SweepConfig:
    """Return a sweep with the budget of its record, unless the budget in the file has changed."""
    before = str(record.facts.get(SPECIFICATION, ""))
    if budget_in(sweep.source_text, sweep.profile) != budget_in(before, sweep.profile):
        return sweep
    return replace(sweep, budget=from_document(record.document, before).budget)


def before_change(sweep: SweepConfig, ledger: Ledger) -> SweepRecord | None:
    """Return the newest sweep of a file before its last change, or None without a change.

    Overrides on a command line are not changes of the file.
    """
    for record in _newest_first(ledger):
        if (record.name, record.profile) == (sweep.name, sweep.profile):
            is_changed = record.facts.get(SPECIFICATION) != sweep.source_text
            return record if is_changed and identity(record.document) != sweep.digest else None
    return None


def _newest_first(ledger: Ledger) -> Iterator[SweepRecord]:
    """Yield every sweep, read one by one to save memory."""
    for sweep_id in reversed(begun(ledger)):
        record = ledger.sweep(sweep_id)
        if record is not None:
            yield record


def with_id(sweep: SweepConfig, sweep_id: str) -> SweepConfig:
    """Return a sweep under its id in the ledger."""
    return replace(sweep, recorded_id=sweep_id)


def unused(sweep: SweepConfig, ledger: Ledger) -> SweepConfig:
    """Return the first edition of a sweep with an unused id."""
    used = set(begun(ledger))
    while sweep.id in used:
        sweep = replace(sweep, edition=sweep.edition + 1)
    return sweep


def check_warm_start(sweep: SweepConfig, ledger: Ledger | None) -> None:
    """Check that the ledger, if it exists, has the warm-start sweeps, with the same objective.

    Raises:
        BadInput: A sweep is missing or has another objective.
    """
    for name in sweep.warm_start:
        record = None if ledger is None else ledger.sweep(name)
        if record is None:
            known = [] if ledger is None else begun(ledger)
            similar = ", ".join(get_close_matches(name, known, cutoff=0.4))
            remedy = f"Known: {similar}." if similar else "`list` shows the sweeps of this ledger."
            must = "must name sweeps of this ledger"
            raise BadInput(f"{sweep.name}: warm_start", must, f"`{name}`", remedy)
        objective = f"{record.facts['direction']} {record.facts['metric']}"
        if objective != (own := f"{sweep.direction} {sweep.metric}"):
            must = f"must name sweeps with the same objective: {own}"
            raise BadInput(f"{sweep.name}: warm_start", must, f"{objective} in `{name}`", "Leave it out.")


def _refuse_change(sweep: SweepConfig, ledger: Ledger) -> None:
    for record in _newest_first(ledger):
        same_file = (record.name, record.profile) == (sweep.name, sweep.profile)
        if same_file and record.state not in FINISHED_SWEEP:
            raise BadInput(
                f"{sweep.name}.yaml",
                f"has changed since its unfinished sweep {record.id} began",
                "; ".join(differences(record.document, sweep.document())),
                f"Undo the change, continue {record.id} with `--resume`, or start a sweep with `--new`.",
            )


SPECIFICATION = "specification"
"""Name of the fact with the text of a sweep's file, as it was read last."""
