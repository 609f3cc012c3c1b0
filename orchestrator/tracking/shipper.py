"""Delivery of a sweep to MLflow, in the background of a driver: its reports, the ledger's outbox, and notes.

MLflow is a projection of the ledger. The points of a curve are made from the ledger's own reports: what
MLflow has of a trial is a position, the time of the newest delivered report. What follows from no report,
such as the start and the end of a run, tags and artifacts, is in the outbox.

A thread of the driver reads what is pending and hands batches to a child process (`deliver`), which
acknowledges each written batch; only then are the positions set and the events marked, in one commit.
Everything is delivered at least once and applied idempotently, so every point is stored exactly once. A child
that dies, hangs or reports an error is replaced after an exponential backoff. What is pending waits in the
ledger for the next driver.

The number of each batch is a tag of the sweep's run in MLflow, and in the ledger. An MLflow that has an older
one, or has lost a run, was emptied or restored from a backup: it gets everything again.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from orchestrator.errors import Busy
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.notes import PendingNote, notes_to_deliver
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import DESCRIPTION
from orchestrator.process_secrets import redacted
from orchestrator.tracking.child import DeliveryError, delivery_to
from orchestrator.tracking.events import noted, of_report

_log = logging.getLogger(__name__)

_POLL_SECONDS = 5.0
"""Longest time between two looks at the ledger."""

_LOOK_SECONDS = 0.2
"""Time between two checks of whether a caller still waits."""

GATHER_SHARE = 0.05
"""Time between two batches, as a share of the time for which a child has delivered."""

REPORTS_AN_EVENT = 8
"""Reports of a batch for each of its events: they cost MLflow one call for each run, not for each report."""

BATCH_SECONDS = 10.0
"""Longest time of a batch that is aimed at. What is written must be written before the lease ends that the
driver had when it sent the batch, and a report may have one metric or a hundred."""

_COUNT_SECONDS = 2.0
"""Longest time to count the pending events at the end of `drain`."""


class Delivery(Protocol):
    """A process that delivers batches of events; see `Child`."""

    def ask(
        self, document: Mapping[str, Any] | None, seconds: float, cancelled: Callable[[], bool]
    ) -> dict[str, Any]:
        """Send a batch, if there is one, and return the next answer."""

    def end(self, seconds: float) -> None:
        """Wait up to `seconds` for the process to exit, then kill it."""

    def kill(self) -> None:
        """Kill the process at once."""


@dataclass(frozen=True)
class Timeouts:
    """Timeouts of the shipper, in seconds.

    Attributes:
        gather: Shortest time between two batches that are not full, so that a batch is worth its
            transactions.
        longest_gather: Maximum of that time, which grows with `GATHER_SHARE` of the child's delivery time.
        longest_busy_gather: Maximum of that time after a batch that has taken half of it or longer.
        awake: Longest time for a child to import MLflow, migrate its database and find the sweep's runs.
        silence: Longest wait for an acknowledgement.
        first_retry: Wait before the first replacement of a child; doubled for each further one.
        longest_retry: Longest wait before a replacement.
        goodbye: Longest time for a child to end by itself.
    """

    gather: float = 1.0
    longest_gather: float = 5.0
    longest_busy_gather: float = 10.0
    awake: float = 120.0
    silence: float = 60.0
    first_retry: float = 1.0
    longest_retry: float = 60.0
    goodbye: float = 5.0

    def gathers(self, age: float, took: float = 0.0) -> float:
        """Return the shortest time from the start of one batch to that of the next.

        A batch costs MLflow one call for each of its runs. While many runs are open, a child is idle for as
        long as the last batch took, so that the next one has more points for each call.

        Args:
            age: Seconds for which the child has delivered.
            took: Seconds that the last batch took.
        """
        usual = min(max(GATHER_SHARE * age, self.gather), self.longest_gather)
        return max(usual, min(2 * took, self.longest_busy_gather))


class Shipper:
    """Delivers the events of one sweep in a thread. No method raises; only `drain` and `close` wait.

        shipper = Shipper(lease, "sqlite:///mlruns/mlflow.db", artifacts)
        shipper.start()
        shipper.nudge()              # after each commit with events
        left = shipper.drain(10.0)   # events that are still pending
        shipper.close()

    Args:
        lease: Lease of the sweep, held until the shipper is closed.
        tracking_uri: Tracking URI of MLflow.
        artifact_root: Root of the artifacts of a new experiment, or None to let a server choose it.
        pace: Timeouts.
        batch: Largest number of events of a batch, and of the reports of the first one. Later ones have as
            many as fit into `BATCH_SECONDS`, at most `REPORTS_AN_EVENT * batch`; a quarter after a failure.
        begin: Function that starts the process that delivers to a destination.
    """

    def __init__(
        self,
        lease: Lease,
        tracking_uri: str,
        artifact_root: Path | None,
        *,
        pace: Timeouts = Timeouts(),
        batch: int = 500,
        begin: Callable[[Mapping[str, Any]], Delivery] = delivery_to,
    ) -> None:
        self._lease, self._writer, self._ledger = lease, lease.writer, lease.writer.ledger
        self._sweep_id = lease.token.sweep_id
        self._system, self._begin = self._ledger.system, begin
        self._destination = {
            "uri": tracking_uri,
            "artifacts": None if artifact_root is None else str(artifact_root),
            "sweep_id": self._sweep_id,
        }
        self._pace, self._batch, self._reports = pace, batch, batch
        self._thread = self._system.thread(self._run, "mlflow-shipper")
        self._changed = self._system.condition()
        self._news = self._idle = self._draining = self._hurried = self._closing = False
        self._seen, self._failures, self._number = 0, 0, 0
        self._after: str | None = None  # trial after which the next batch begins
        self._last_error: str | None = None
        self._child: Delivery | None = None

    def start(self) -> None:
        """Start delivery, which includes the pending events of earlier drivers."""
        self._thread.start()

    def nudge(self) -> None:
        """Announce new reports or events."""
        with self._changed:
            self._news, self._idle = True, False
            self._changed.notify_all()

    def drain(self, seconds: float, until: Callable[[], bool] = lambda: False) -> int:
        """Ship pending events for at most `seconds`; return the number that is still pending.

        While the server of the ledger does not answer, the number counts only the latest batch.

        Args:
            seconds: Longest time to wait.
            until: Function that returns True to end the wait early.
        """
        deadline = self._system.monotonic() + seconds
        with self._changed:
            self._draining, self._hurried, self._news, self._idle = True, True, True, False
            self._changed.notify_all()
            while not (self._idle or not self._thread.is_alive() or until()):
                if (left := deadline - self._system.monotonic()) <= 0:
                    break
                self._changed.wait(min(left, _LOOK_SECONDS))
            self._draining = False
        return self._counted(_COUNT_SECONDS)

    def kill(self) -> None:
        """Kill the child at once: this process ends, or has lost its lease."""
        if (child := self._child) is not None:
            child.kill()

    def close(self) -> None:
        """End the thread and the child; pending events stay in the ledger."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(2 * self._pace.goodbye)

    def _counted(self, seconds: float) -> int:
        """Return the number of pending events, or an earlier count if counting takes longer.

        Counting has a thread of its own, because the ledger of a driver waits for its server without limit.
        """
        counts: SimpleQueue[int] = SimpleQueue()

        def count() -> None:
            try:
                counts.put(self._ledger.backlog(self._sweep_id))
            except Exception as error:  # noqa: BLE001 - no failure of tracking may end the driver
                _log.warning("The events waiting for MLflow cannot be counted: %s", redacted(str(error)))

        thread = self._system.thread(count, "mlflow-count")
        thread.start()
        thread.join(seconds)
        return self._seen if counts.empty() else counts.get()

    def _run(self) -> None:
        while not self._closing:
            try:
                self._serve()
            except Exception as error:  # noqa: BLE001 - no failure of tracking may end the driver
                if not self._closing:
                    self._back_off(error)
        with self._changed:
            self._idle = True
            self._changed.notify_all()

    def _serve(self) -> None:
        """Ship through one child until the shipper is closed."""
        self._lease.check()
        known = {"runs": self._ledger.mlflow_runs(self._sweep_id), "number": self._lease.token.number}
        identity = {**_identity(self._ledger, self._sweep_id), **known, "until": self._lease.ends_at}
        self._child = child = self._begin({**self._destination, **identity})
        try:
            first = self._answer(child, None, self._pace.awake, sweep_id=self._sweep_id)
            self._number = self._ledger.mlflow_batch(self._sweep_id)
            if first["batch"] < self._number or first["lost"]:
                # Before new runs are recorded: a driver that is killed here finds the same.
                _log.warning("MLflow has lost records of %s, and gets all of them again.", self._sweep_id)
                self._writer.redeliver()
            self._writer.record_mlflow_runs(first["created"])
            for note in first.get("notes", ()):
                _log.warning("%s.", note)
            since = self._system.monotonic()
            while not self._closing:
                self._ship(child, since)
        finally:
            child.end(self._pace.goodbye if self._closing else 0.0)

    def _ship(self, child: Delivery, since: float) -> None:
        """Ship one batch, or wait for new events."""
        with self._changed:
            self._news = False
        began = self._system.monotonic()
        after = self._after
        waiting = self._ledger.pending(self._sweep_id, self._batch, reports=self._reports, after=after)
        rows, reports = waiting.events, waiting.reports
        is_last = len(rows) < self._batch and len(reports) < self._reports
        # The runs take turns. If each batch began with the first one, those at the end would starve while
        # more is reported than a batch holds, and the others would have few points in each batch.
        if is_last or reports:
            self._after = None if is_last else reports[-1].trial_key
        # These events replace a description; every other run exists once the outbox is empty.
        described = {row.event.run for row in rows if DESCRIPTION in row.event.payload.get("tags", ())}
        begun = described | {row.event.run for row in rows if row.event.kind == "start"}
        notes = [
            pending
            for pending in notes_to_deliver(self._ledger, self._sweep_id)
            if pending.note.target in begun
            or (pending.delivered < pending.revision and len(rows) < self._batch)
        ]
        self._seen, took = len(rows) + len(reports) + len(notes), 0.0
        if self._seen:
            self._lease.check()
            curves = [vars(event) for report in reports for event in of_report(report)]
            events = [*(vars(row.event) for row in rows), *curves, *self._noted(notes)]
            number = self._number + 1
            batch = {"batch": number, "events": events, "until": self._lease.ends_at}
            created = self._answer(child, batch, self._pace.silence, batch=number)["created"]
            recorded = {"batch": number, "recorded": self._recorded(created)}
            answer = self._answer(child, recorded, self._pace.silence, batch=number)
            for refusal in answer["refused"]:
                _log.warning("MLflow rejects %(kind)s of %(run)s: %(reason)s", refusal)
            self._writer.delivered(waiting, number)
            self._number = number
            self._writer.notes_delivered({each.note.target: each.revision for each in notes})
            self._seen, self._failures, self._last_error = 0, 0, None
            took = max(self._system.monotonic() - began, 1e-3)
            if len(reports) == self._reports or (reports and took > BATCH_SECONDS):
                fits = max(1, int(len(reports) * BATCH_SECONDS / took))
                self._reports = min(fits, REPORTS_AN_EVENT * self._batch)
        if is_last:
            if after is None:  # all runs were looked at, and `nudge` announces later events
                self._rest(_POLL_SECONDS)
            if not self._draining:
                now = self._system.monotonic()
                self._sleep(self._pace.gathers(now - since, took) - (now - began))

    def _noted(self, notes: Sequence[PendingNote]) -> list[dict[str, Any]]:
        """Return the events of notes; that of the sweep stands before the description of its run."""
        own = any(each.note.target == self._sweep_id for each in notes)
        described = self._ledger.description(self._sweep_id) if own else ""
        texts = {self._sweep_id: described}
        return [vars(noted(each.note, texts.get(each.note.target, ""))) for each in notes]

    def _answer(
        self, child: Delivery, document: Mapping[str, Any] | None, seconds: float, **question: object
    ) -> dict[str, Any]:
        """Return the answer of a child to a document.

        Raises:
            DeliveryError: The answer is missing, or answers another question.
        """
        answer = child.ask(document, seconds, lambda: self._closing)
        named = {name: answer.get(name) for name in question}
        if named != question:
            raise DeliveryError(f"the delivering process must answer {question} (got {named})")
        return answer

    def _recorded(self, created: Mapping[str, str]) -> bool:
        """Record the runs that a child has created; return False if another driver has taken the lease."""
        try:
            self._writer.record_mlflow_runs(created)
        except Busy:
            return False
        return True

    def _back_off(self, error: Exception) -> None:
        self._failures, self._reports = self._failures + 1, max(1, self._reports // 4)
        before, self._last_error = self._last_error, redacted(f"{type(error).__name__}: {error}")
        wait = min(self._pace.longest_retry, self._pace.first_retry * 2 ** (self._failures - 1))
        level = logging.DEBUG if before == self._last_error else logging.WARNING
        _log.log(level, "MLflow cannot be reached (%s); next try in %.0f s", self._last_error, wait)
        with self._changed:
            self._hurried = False
            self._changed.wait_for(lambda: self._closing or self._hurried, wait * random.uniform(0.8, 1.2))

    def _rest(self, seconds: float) -> None:
        """Release callers of `drain`, and wait for new events."""
        with self._changed:
            if not self._news:
                self._idle = True
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._news or self._closing, seconds)

    def _sleep(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._draining, max(0.0, seconds))


def _identity(ledger: Ledger, sweep_id: str) -> dict[str, Any]:
    """Return the fields of `Destination` that come from the ledger."""
    record = ledger.sweep(sweep_id)
    if record is None:
        raise LookupError(f"no sweep {sweep_id} in the ledger")
    return {
        "experiment": record.task,
        "sweep_created": repr(record.created_at),
        "minimize": record.facts.get("direction") == "minimize",
    }
