"""The invariants of every step: each commit, flush, deletion and delivery."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.assignment import Outcome
from orchestrator.ledger.sweeps.records import UserDecision
from orchestrator.session.limits import ALLOWED_RETRIES
from orchestrator.tracking.events import milliseconds
from tests.simulation.cluster import Cluster
from tests.simulation.database import Database
from tests.simulation.driver import Driver
from tests.simulation.kernel import Kernel, Process
from tests.simulation.strikes import AT_ONCE_SECONDS
from tests.simulation.system import EPOCH
from tests.simulation.violation import require

BUDGET_SLACK_SECONDS = 6.0
"""Longest time after which a driver learns of the end of an attempt."""


_FINISHED = (
    "SELECT key, state, value, best_step, step, attempts, params FROM trial WHERE finished_at IS NOT NULL"
)


class Finished:
    """Compares what is finished after each commit: it is neither lost nor changed nor run again.

    A loss of power, or `recover`, may lose what was not flushed: nothing has acted on that.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, tuple[object, ...]] = {}
        self._flushed: dict[str, tuple[object, ...]] = {}

    def flush(self) -> None:
        """Note that every commit so far is durable."""
        self._flushed = self._known

    def lose(self) -> None:
        """Compare what is left after rows may have been lost with what was flushed."""
        rows = self._rows()
        lost = sorted(key for key, row in self._flushed.items() if rows.get(key) != row)
        require(not lost, "finished", f"{lost} were flushed and are lost")
        self._known = rows

    def _rows(self) -> dict[str, tuple[object, ...]]:
        return {str(key): tuple(rest) for key, *rest in self._database.rows(_FINISHED)}

    def check(self, process: Process, written: list[str]) -> None:
        """Compare the finished trials with those of the commit before."""
        if not any(label.endswith(" trial") for label in written):
            return
        rows = self._rows()
        for key, row in self._known.items():
            require(
                rows.get(key) == row, "finished", f"{key} was {row}, {process.name} makes it {rows.get(key)}"
            )
        self._known = rows


class Holders:
    """Checks that only the process that took the lease last changes the rows of the sweep."""

    def __init__(self, kernel: Kernel, database: Database) -> None:
        self._kernel, self._database = kernel, database
        self._number, self._holder = 0, ""
        self._expires_at = float("-inf")
        self._process: Process | None = None

    def lose(self) -> None:
        """Forget the newest token: its row may be lost."""
        self._number, self._process = -1, None

    def check(self, process: Process, written: list[str]) -> None:
        """Note who takes the lease, and compare who changes rows."""
        if process.name == "person":  # who asks for a stop needs no lease
            return
        if any(label.endswith(" lease") for label in written):
            ((number, expires_at),) = self._database.rows("SELECT number, expires_at FROM lease")
            if number != self._number:
                self._number, before = number, self._holder
                left = self._expires_at - EPOCH - self._kernel.now
                lives = self._process is not None and self._process.alive
                require(
                    not lives or left <= 0,
                    "lease",
                    f"{process.name} takes it from {before}, which lives and holds it for {left:.1f} s more",
                )
                self._holder, self._process = process.name, process
                self._kernel.trace(f"takes the lease from {before}" if before else "takes the lease")
            self._expires_at = expires_at
            if expires_at <= EPOCH + self._kernel.now:  # it is given back, or the kernel guards it
                self._process = None
            return
        require(
            process.name == self._holder,
            "token",
            f"{process.name} changes rows ({', '.join(written)}) although {self._holder} holds the lease",
        )


class StopRequests:
    """Checks that no driver that starts after a stop request launches anything, until a person resumes.

    Args:
        drivers: Drivers so far.
    """

    def __init__(self, kernel: Kernel, database: Database, drivers: Sequence[Driver]) -> None:
        self._kernel, self._database, self._drivers = kernel, database, drivers
        self._asked_at: float | None = None

    def lose(self) -> None:
        """Forget a request whose row is lost."""
        if not self._database.count("stop_request"):
            self._asked_at = None

    def check(self, process: Process, written: list[str]) -> None:
        """Note stop requests and their end, and compare who launches attempts."""
        if "insert stop_request" in written:
            self._asked_at = self._kernel.now
        elif "delete stop_request" in written:
            resumes = any(each.process is process and not each.unless_stopped for each in self._drivers)
            require(resumes, "stop", f"{process.name}, which no person has started, withdraws a stop request")
            self._asked_at = None
        elif "insert attempt" in written:
            asked_at = self._asked_at
            obeys = asked_at is None or process.began <= asked_at
            require(obeys, "stop", f"{process.name} launches an attempt, asked to stop at {asked_at} s")


class Requests:
    """Checks that each setting that a person requests waits or has one trial: none is lost or tried twice.

    Args:
        database: Database of the ledger.
        requested: Learning rates that were requested so far.
        acknowledged: Those whose requests were acknowledged.
    """

    def __init__(
        self, database: Database, requested: Sequence[float], acknowledged: Collection[float]
    ) -> None:
        self._database, self._requested, self._acknowledged = database, requested, acknowledged

    def lose(self) -> None:
        """Check what is left: the loss of a trial that has not begun brings its request back."""
        self._check("after a loss")

    def check(self, process: Process, written: list[str]) -> None:
        """Check the requests after a commit that may change them."""
        if any(label.endswith((" trial", " wanted_setting")) for label in written):
            self._check(f"after a commit of {process.name}")

    def _check(self, when: str) -> None:
        trials = "SELECT params FROM trial WHERE role = 'search'"
        rows = self._database.rows(f"SELECT params FROM wanted_setting UNION ALL {trials}")
        rates = [json.loads(params)["learning_rate"] for (params,) in rows]
        for rate in self._requested:
            least = int(rate in self._acknowledged)
            require(
                least <= rates.count(rate) <= 1,
                "requests",
                f"{rate:g} waits or has a trial {rates.count(rate)} times {when}, requested once",
            )


@dataclass
class RequestedDecision:
    """Request of a person about a trial.

    Attributes:
        decision: Decision of the person.
        is_acknowledged: Whether the person knows that it was accepted.
    """

    decision: UserDecision
    is_acknowledged: bool = False


class TrialRequests:
    """Checks that a request about a trial waits or is recorded, and that a stopped trial is not launched.

    Args:
        database: Database of the ledger.
        requested: Requests so far, by trial.
    """

    def __init__(self, database: Database, requested: Mapping[str, RequestedDecision]) -> None:
        self._database, self._requested = database, requested
        self._attempts: dict[str, int] = {}  # attempts of each stopped trial when its stop was recorded

    def lose(self) -> None:
        """Check what is left; a decision that was not flushed waits again as a request."""
        self._attempts.clear()
        self._check("after a loss")

    def check(self, process: Process, written: list[str]) -> None:
        """Check the requests after a commit that may change them."""
        if any(label.endswith((" trial", " trial_request", " attempt")) for label in written):
            self._check(f"after a commit of {process.name}")

    def _check(self, when: str) -> None:
        if not self._requested:
            return
        waiting = {key for (key,) in self._database.rows("SELECT trial_key FROM trial_request")}
        columns = "key, attempts, system_attrs, finished_at IS NOT NULL, step < total_steps"
        trials = {key: row for key, *row in self._database.rows(f"SELECT {columns} FROM trial")}
        for key, request in self._requested.items():
            if key not in trials:  # it is lost, and its number will be another trial
                continue
            attempts, attrs, has_ended, may_train = trials[key]
            is_recorded = request.decision in json.loads(attrs)
            lost = request.is_acknowledged and not (is_recorded or has_ended or key in waiting)
            require(not lost, "requests", f"{request.decision} {key} is lost {when}")
            # One that has reported its last step is settled by a further attempt, which trains nothing.
            if is_recorded and may_train and request.decision == "stop":
                most = self._attempts.setdefault(key, attempts)
                require(attempts <= most, "requests", f"{key} is launched {when}, a person has stopped it")


class Charges:
    """Checks, whenever an attempt ends, that it is charged for what its own worker has done, and for no more.

    Args:
        kernel: Kernel of the simulation.
        database: Database of the ledger.
        cluster: Cluster that trains.
        excused: Ids of the attempts whose workers were struck: these may be charged to their trials.
        is_timed: Whether a budget counts only the time for which a worker held resources. A driver that is
            paused, or whose messages are late, learns later of the end of an attempt; a clock that is set
            measures another time.
    """

    def __init__(
        self,
        kernel: Kernel,
        database: Database,
        cluster: Cluster,
        excused: Collection[str],
        *,
        is_timed: bool,
    ) -> None:
        self._kernel, self._database, self._cluster = kernel, database, cluster
        self._excused, self._is_timed = excused, is_timed

    def lose(self) -> None:
        """Nothing is remembered."""

    def check(self, process: Process, written: list[str]) -> None:
        """Check the attempts that have ended."""
        if "update attempt" not in written:
            return
        columns = "id, cause, taken_at, ended_at - coalesce(outage_seconds, 0)"
        query = f"SELECT {columns} FROM attempt WHERE ended_at IS NOT NULL"
        for attempt_id, cause, taken, ended in self._database.rows(query):
            require(
                cause not in ALLOWED_RETRIES or attempt_id in self._excused,
                "charges",
                f"{process.name} charges {attempt_id} with {cause!r} although nothing was wrong with it",
            )
            if self._is_timed and taken is not None:
                charged, held = ended - taken, self._held(attempt_id)
                require(
                    charged <= held + BUDGET_SLACK_SECONDS,
                    "budget",
                    f"{process.name} charges {attempt_id} for {charged:.1f} s, it held {held:.1f} s",
                )

    def _held(self, attempt_id: str) -> float:
        """Return the seconds for which the worker of an attempt has held resources so far."""
        began = self._cluster.taken_at.get(attempt_id)
        if began is None:
            return 0.0
        return self._cluster.ended_at.get(attempt_id, self._kernel.now) - began


class Dropped:
    """Checks that a worker saves nothing for an attempt that its driver dropped before a worker took it.

    Nobody would record the checkpoint. A driver that a second signal makes leave at once waits for no worker:
    what those that have begun until then still save is removed by the next run or by `gc`.
    """

    def __init__(self, database: Database, kernel: Kernel, cluster: Cluster) -> None:
        self._database, self._kernel, self._cluster = database, kernel, cluster

    def report(self, attempt_id: str, outcome: Outcome) -> None:
        """Look at the attempt of an outcome."""
        if self._cluster.taken_at.get(attempt_id, 0.0) <= self._kernel.hurried_at + AT_ONCE_SECONDS:
            return
        columns = "state != 'RUNNING' AND taken_at IS NULL"
        for (dropped,) in self._database.rows(f"SELECT {columns} FROM attempt WHERE id = '{attempt_id}'"):
            require(
                outcome.checkpoint is None or not dropped,
                "dropped",
                f"the worker of {attempt_id} has saved step {outcome.step}; no worker had taken that attempt",
            )


class Interrupted:
    """Checks that a driver has ended its attempts before its sweep, also if it has no time to save."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def lose(self) -> None:
        """Nothing is remembered."""

    def check(self, process: Process, written: list[str]) -> None:
        """Look for attempts that run in a sweep that is interrupted now."""
        if "update sweep" in written and self._database.count("sweep WHERE state = 'INTERRUPTED'"):
            running = self._database.count("attempt WHERE state = 'RUNNING'")
            require(not running, "interrupted", f"{process.name} has left {running} attempts RUNNING")


class Flushed:
    """Checks that nothing outside a SQLite ledger is changed on account of a commit that power may undo.

    A commit on a server is durable when the server acknowledges it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._told, self._checkpoints = frozenset[tuple[Any, ...]](), frozenset[str]()
        self.flush()

    def flush(self) -> None:
        """Note what is durable, because it is committed now: reports, events, references to checkpoints."""
        if not self._database.is_server:
            reports = self._database.rows("SELECT trial_key, at FROM report")
            events = self._database.rows("SELECT run, at_ms FROM outbox")
            self._told = frozenset([*((key, milliseconds(at)) for key, at in reports), *events])
            self._checkpoints = frozenset(
                path for (path,) in self._database.rows("SELECT path FROM checkpoint")
            )

    def lose(self) -> None:
        """Note what is left: it is on the disk."""
        self.flush()

    def check(self, process: Process, written: list[str]) -> None:
        """Accept every commit: it is what follows from a commit that must wait for a flush."""

    def deliver(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Check that what is about to leave for MLflow is durable."""
        for event in events if not self._database.is_server else ():
            kind, run, at_ms = event["kind"], event["run"], event["at_ms"]
            is_note = "note.tags" in event["payload"].get("tags", ())  # durable when it was acknowledged
            require(
                is_note or (run, at_ms) in self._told,
                "flushed",
                f"{kind} of {run} are sent to MLflow, and a loss of power may undo what they tell",
            )

    def delete(self, path: str) -> None:
        """Check that no durable row refers to a folder that is about to be deleted."""
        require(
            self._database.is_server or path not in self._checkpoints,
            "flushed",
            f"{Path(path).name} is deleted, and after a loss of power the ledger may refer to it",
        )
