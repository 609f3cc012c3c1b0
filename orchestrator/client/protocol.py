"""The client protocol: everything that can be asked of a service, from any machine.

Two backends implement it: `orchestrator.api.local.LocalBackend` in this process, over the ledger, and
`orchestrator.client.http.HttpBackend`. Every method gives equal answers on both. What needs the machine of
the ledger (running, evaluating, exporting, upkeep) is not part of the protocol.

>>> backend = Sweep.connect("https://sweeps.example.org")  # doctest: +SKIP
>>> submitted = backend.submit("search_spaces/listops.yaml")  # doctest: +SKIP
>>> backend.status(submitted.id).state  # doctest: +SKIP
'QUEUED'
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from orchestrator.client.answers import (
    AddedUser,
    Changes,
    DetailedStatus,
    LiveSweep,
    LogPart,
    PlannedSweep,
    QueuedSweep,
    QuotaRow,
    ReportRow,
    Status,
    Stopped,
    Submitted,
    SweepSettings,
    TrialDocument,
    TrialRow,
)
from orchestrator.ledger.people.audit import AuditEntry
from orchestrator.ledger.people.users import User
from orchestrator.ledger.sweeps.pareto import ParetoFront

DAYS = 90.0
"""Days that a token is valid by default."""

LOG_BYTES = 65_536
"""Length of a part of a log."""


class Backend(Protocol):
    """A service, wherever it is.

    A sweep is named by its ID or the beginning of it, a trial by its key or its number in the newest sweep.
    Every method raises BadInput if the request is refused, and NoServer if the service does not answer.
    """

    # Sweeps and trials

    def sweeps(self) -> Sequence[Status]:
        """All sweeps, the oldest first."""

    def status(self, sweep: str | None = None) -> DetailedStatus:
        """The state of a sweep, or of the newest one."""

    def live(self, sweep: str | None = None) -> LiveSweep:
        """What a sweep does now: running trials, best values, place in the queue, budget, events."""

    def changes(self, sweep: str) -> Changes:
        """How a sweep differs from the previous one of the same file and profile."""

    def pareto(self, sweep: str) -> ParetoFront:
        """The trials of a sweep that no other one dominates in all objectives, and their hypervolume."""

    def trials(self, sweep: str) -> Sequence[TrialRow]:
        """All trials of a sweep, the search before the confirmations."""

    def trial(self, trial: str) -> TrialDocument:
        """Everything about a trial, except for its reports."""

    def reports(self, trial: str) -> Sequence[ReportRow]:
        """All reports of a trial, by step."""

    def log(self, sweep: str, start: int | None = None) -> LogPart:
        """A part of the drivers' output from a position in bytes; the last lines if `start` is None."""

    def trial_log(self, trial: str, start: int = 0) -> LogPart:
        """A part of the workers' output on the machine of the service, from a position in bytes."""

    def report(self, sweep: str) -> bytes:
        """The report of a sweep as it stands, one HTML page."""

    # Submission

    def submit(
        self,
        file: str | Path,
        *,
        profile: str | None = "auto",
        overrides: Sequence[str] = (),
        new: bool = False,
        key: str | None = None,
    ) -> Submitted:
        """Submit a search-space file of this machine.

        Args:
            file: The file.
            profile: Profile of the file, as in `Sweep.load`.
            overrides: Changes to the file, `key=value` each.
            new: Whether to run another sweep of the same file.
            key: Idempotency key: repeating the request with it adds nothing.
        """

    def validate(
        self,
        file: str | Path,
        *,
        profile: str | None = "auto",
        overrides: Sequence[str] = (),
        sizes: bool = True,
    ) -> PlannedSweep:
        """Check a search-space file of this machine; nothing is submitted.

        Args:
            file: The file.
            profile: Profile of the file, as in `Sweep.load`.
            overrides: Changes to the file, `key=value` each.
            sizes: Whether to count the sizes of its networks, which takes seconds.
        """

    def stop(self, sweep: str) -> Stopped:
        """Save every trial and stop; the sweep stays stopped until `resume`."""

    def resume(self, sweep: str) -> SweepSettings:
        """Queue a sweep again that was stopped or parked, or let its driver go on."""

    def extend(self, sweep: str, *, key: str | None = None, **budget: Any) -> Submitted:
        """Queue a finished sweep again with a larger budget, by the keys of the section `budget`."""

    def retry(self, sweep: str, *, key: str | None = None) -> Submitted:
        """Queue the failed trials of a finished sweep again."""

    # The queue

    def queue(self) -> Sequence[QueuedSweep]:
        """Every sweep that runs or waits, in the order of the queue."""

    def move(self, sweep: str, priority_class: str, *, weight: float = 1.0) -> SweepSettings:
        """Set the class of a sweep, and its weight relative to the owner's other sweeps."""

    def quota(self, owner: str) -> QuotaRow:
        """The weight and the quotas of an owner."""

    def set_quota(
        self,
        owner: str,
        *,
        weight: float | None = None,
        share: float | None = None,
        gpu_hours: float | None = None,
        sweeps: float | None = None,
        new: bool = False,
    ) -> QuotaRow:
        """Change what is given; infinity removes a limit. `new` allows an owner that does not exist yet."""

    # Users

    def users(self) -> Sequence[User]:
        """All users by name."""

    def add_user(self, name: str, role: str = "member", *, days: float = DAYS) -> AddedUser:
        """Add a user; the token expires after some days (90 by default, infinity for never)."""

    def revoke_user(self, name: str) -> User:
        """Revoke the token of a user."""

    def audit_log(self, limit: int = 100) -> Sequence[AuditEntry]:
        """The newest entries of the audit log, the newest first."""
