"""The shipper delivers a real ledger through a real child to a real MLflow, despite faults."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from sqlalchemy import event as listener
from sqlalchemy import insert, update

from benchmarks.faults.site import disagreement
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.lease_backends import next_token
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.people.notes import NoteChange, change_note
from orchestrator.ledger.rows import REPORTS
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import Event, Pending, ReportRecord
from orchestrator.ledger.sweeps.writer import SweepWriter
from orchestrator.ledger.tables import REPORT, TRIAL
from orchestrator.system import System
from orchestrator.tracking import child, events
from orchestrator.tracking import shipper as shipper_module
from orchestrator.tracking.database import connect
from orchestrator.tracking.deliver import Deadline, serve
from orchestrator.tracking.mlflow_sink import Destination, MlflowSink
from orchestrator.tracking.shipper import Shipper, Timeouts
from tests import postgres, sweeps
from tests.orchestrator.tracking.stored import EVERYTHING, NewDatabase, points_by_run

_DELIVERS = "orchestrator.tracking.deliver"
QUICK = Timeouts(gather=0.05, awake=60.0, silence=3.0, first_retry=0.1, longest_retry=0.2, goodbye=3.0)


@pytest.fixture
def ledger_url(tmp_path: Path, new_mlflow: NewDatabase) -> str:
    """Return a ledger whose outbox holds a sweep of three trials, with an MLflow database beside it."""
    new_mlflow(tmp_path)
    url = f"sqlite:///{tmp_path / 'sweeps.db'}"
    ledger = Ledger.open(url)
    sweeps.fill(ledger, tmp_path, [sweeps.trial(number) for number in range(3)])
    ledger.close()
    return url


@pytest.fixture
def lease(ledger_url: str) -> Iterator[Lease]:
    """Hold the lease of the sweep."""
    with closing(Ledger.open(ledger_url)) as ledger, Lease(ledger, sweeps.SWEEP_ID) as held:
        yield held


def _shipper(lease: Lease, folder: Path, **options: object) -> Shipper:
    return Shipper(
        lease,
        f"sqlite:///{folder / 'mlflow.db'}",
        folder / "artifacts",
        **{"pace": QUICK, **options},  # type: ignore[arg-type]
    )


@pytest.fixture
def shipper(lease: Lease, tmp_path: Path) -> Iterator[Shipper]:
    shipper = _shipper(lease, tmp_path, batch=4)
    yield shipper
    shipper.close()


def _children() -> list[psutil.Process]:
    living = (each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE)
    return [process for process in living if _DELIVERS in process.cmdline()]


def _stored(folder: Path) -> dict[str, int]:
    return points_by_run(f"sqlite:///{folder / 'mlflow.db'}")


def test_everything_arrives_once_although_a_child_is_killed(
    shipper: Shipper, lease: Lease, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert lease.writer.ledger.backlog(sweeps.SWEEP_ID) == 23
    shipper.start()
    while not _children():
        time.sleep(0.02)
    _children()[0].kill()
    assert shipper.drain(60) == 0
    assert "MLflow rejects" not in caplog.text
    assert _stored(tmp_path) == EVERYTHING
    sweeps.run_trial(lease.writer, sweeps.trial(3), tmp_path)
    shipper.nudge()
    assert shipper.drain(20) == 0
    assert _stored(tmp_path) == {**EVERYTHING, "0003": 67}
    site = SimpleNamespace(root=tmp_path, ledger=lease.writer.ledger, id=sweeps.SWEEP_ID)
    assert disagreement(site) == "1 runs not ended, or duplicated", "that of the sweep, which goes on"
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute("UPDATE metrics SET step = step + 1 WHERE key = 'val/loss'")
    assert "points missing" in disagreement(site)
    shipper.close()
    assert _children() == []


class InThisProcess:
    """Delivers to a real MLflow in a thread of this process, which has imported MLflow."""

    def __init__(self, destination: Mapping[str, Any]) -> None:
        self._questions, self._answers = SimpleQueue[dict[str, Any] | None](), SimpleQueue[dict[str, Any]]()
        first = dict(destination)
        until = Deadline(first.pop("until"), System())
        self._thread = threading.Thread(target=self._main, args=(Destination(**first), until), daemon=True)
        self._thread.start()

    def _main(self, destination: Destination, until: Deadline) -> None:
        sink = MlflowSink(destination, until.check)
        for _ in serve(sink, until, self._questions.get, self._answers.put):
            pass

    def ask(
        self, document: Mapping[str, Any] | None, seconds: float, cancelled: Callable[[], bool]
    ) -> dict[str, Any]:
        if document is not None:
            self._questions.put(json.loads(json.dumps(document)))
        return self._answers.get(timeout=seconds)

    def end(self, seconds: float) -> None:
        self._questions.put(None)
        self._thread.join()

    def kill(self) -> None:
        pass


PATIENT = replace(QUICK, silence=60.0)


def deliver(lease: Lease, folder: Path) -> None:
    with closing(_shipper(lease, folder, pace=PATIENT, begin=InThisProcess)) as shipper:
        shipper.start()
        assert shipper.drain(120) == 0


def test_a_point_that_was_sent_but_not_recorded_is_sent_again_and_stored_once(
    lease: Lease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver may be killed between the answer of the child and the commit of the positions."""
    record, lost = lease.writer.delivered, list[int]()

    def fail_once(pending: Pending, batch: int = 0) -> None:
        if pending.reports and not lost:
            lost.append(batch)
            raise OSError("killed")
        record(pending, batch)

    monkeypatch.setattr(lease.writer, "delivered", fail_once)
    deliver(lease, tmp_path)
    assert lost
    assert _stored(tmp_path) == EVERYTHING


def _copy(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("lost", ["everything", "the newest points", "an end"])
def test_an_mlflow_that_was_emptied_or_restored_gets_everything_again(
    lease: Lease, tmp_path: Path, new_mlflow: NewDatabase, caplog: pytest.LogCaptureFixture, lost: str
) -> None:
    database, older = tmp_path / "mlflow.db", tmp_path / "older" / "mlflow.db"
    older.parent.mkdir()
    attempt = sweeps.start_trial(lease.writer, sweeps.trial(3), tmp_path)
    deliver(lease, tmp_path)
    if lost == "everything":
        new_mlflow(older.parent)
    else:
        _copy(database, older)
    if lost == "the newest points":
        lease.writer.record_report(attempt.id, 10_000, {"val/accuracy": 0.5})
    else:
        lease.writer.end_attempt(attempt.id, "ENDED", None, "PRUNED", 0.5, 40, [ended_of(3)])
    deliver(lease, tmp_path)
    complete = _stored(tmp_path), _statuses(database)
    _copy(older, database)
    assert _statuses(database) != complete[1] or _stored(tmp_path) != complete[0]
    for is_lost in (True, False):
        caplog.clear()
        deliver(lease, tmp_path)
        assert ("MLflow has lost records of" in caplog.text) == is_lost
        assert (_stored(tmp_path), _statuses(database)) == complete


def ended_of(number: int) -> Event:
    return events.trial_ended(sweeps.trial(number).key, "PRUNED", None, 40, 0.5, 1_790_000_900_000)


def _statuses(database: Path) -> dict[str, str]:
    query = "SELECT t.value, r.status FROM runs r JOIN tags t USING (run_uuid) WHERE t.key = 'trial.key'"
    with closing(sqlite3.connect(database)) as connection:
        return dict(connection.execute(query).fetchall())


@pytest.mark.slow
def test_a_hung_child_is_replaced(shipper: Shipper, lease: Lease, tmp_path: Path) -> None:
    shipper.start()
    assert shipper.drain(60) == 0
    (hung,) = _children()
    hung.suspend()
    sweeps.run_trial(lease.writer, sweeps.trial(3), tmp_path)
    assert shipper.drain(60) == 0
    shipper.close()
    assert not hung.is_running()
    assert _stored(tmp_path) == {**EVERYTHING, "0003": 67}


@pytest.mark.slow
def test_undelivered_events_wait_for_the_next_driver(
    lease: Lease, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_COMMAND", (sys.executable, "-c", "raise SystemExit('out of order')"))
    shipper = _shipper(lease, tmp_path)
    with caplog.at_level(logging.WARNING):
        began = time.monotonic()
        shipper.start()
        assert shipper.drain(1.0) == 23
        shipper.close()
    assert time.monotonic() - began < 5
    assert "out of order" in caplog.text
    monkeypatch.undo()
    following = _shipper(lease, tmp_path)
    following.start()
    assert following.drain(60) == 0
    following.close()
    assert _stored(tmp_path) == EVERYTHING


@pytest.mark.slow
def test_a_shipper_whose_lease_is_lost_delivers_nothing(
    lease: Lease, ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two drivers ship the same outbox at the same time: only the one with the newest token delivers."""
    monkeypatch.setattr(lease, "check", lambda: None)  # it does not know yet that it has lost its lease
    former = _shipper(lease, tmp_path)
    with closing(Ledger.open(ledger_url)) as ledger:
        token = next_token(ledger.writer, sweeps.SWEEP_ID, Holder.here())
        former.start()
        assert former.drain(120, until=lambda: former._failures >= 2) == 23
        assert str(former._last_error).startswith("Busy")
        following = Lease(ledger, sweeps.SWEEP_ID)
        following.token, following.writer = token, SweepWriter(ledger, token)
        newest = _shipper(following, tmp_path)
        monkeypatch.setattr(following, "check", lambda: None)
        monkeypatch.setattr(type(following), "ends_at", property(lambda _: System().since_boot() + 60.0))
        newest.start()
        assert newest.drain(60) == 0
        newest.close()
    former.close()
    assert _stored(tmp_path) == EVERYTHING


@pytest.mark.slow
def test_a_child_does_not_outlive_a_killed_driver(ledger_url: str, tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from orchestrator.ledger.sweeps.lease import Lease\n"
        "from orchestrator.ledger.ledger import Ledger\n"
        "from orchestrator.tracking.shipper import Shipper\n"
        f"root = Path({str(tmp_path)!r})\n"
        f"with Lease(Ledger.open({ledger_url!r}), {sweeps.SWEEP_ID!r}) as lease:\n"
        "    s = Shipper(lease, f'sqlite:///{root}/mlflow.db', root)\n"
        "    s.start(); time.sleep(60)"
    )
    driver = psutil.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[3])
    deadline = time.monotonic() + 60
    while not (orphans := driver.children()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    deadline = time.monotonic() + 60
    while not all(_has_ended(orphan) for orphan in orphans):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _has_ended(process: psutil.Process) -> bool:
    """Return True if a process has ended; it may wait for its new parent to notice, as a zombie."""
    try:
        return process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(("age", "seconds"), [(0.0, 1.0), (19.0, 1.0), (60.0, 3.0), (100.0, 5.0), (1e6, 5.0)])
def test_batches_of_a_long_sweep_are_larger(age: float, seconds: float) -> None:
    assert Timeouts().gathers(age) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("age", "took", "seconds"),
    [(0.0, 0.4, 1.0), (1e6, 2.0, 5.0), (0.0, 3.0, 6.0), (1e6, 4.0, 8.0), (1e6, 60.0, 10.0)],
)
def test_a_child_is_idle_for_as_long_as_the_last_batch_took(age: float, took: float, seconds: float) -> None:
    """A batch of a quiet sweep takes less than half of the usual time, and changes it not at all."""
    assert Timeouts().gathers(age, took) == pytest.approx(seconds)


def test_closing_without_starting_is_harmless(shipper: Shipper) -> None:
    shipper.nudge()
    shipper.close()


@pytest.mark.slow
def test_events_that_are_written_after_the_last_look_are_counted(
    shipper: Shipper, lease: Lease, tmp_path: Path
) -> None:
    """A caller that waits no longer gets the number in the ledger, not that of the shipper's last look."""
    shipper.start()
    assert shipper.drain(60) == 0
    (child_process,) = _children()
    child_process.suspend()
    sweeps.run_trial(lease.writer, sweeps.trial(3), tmp_path)
    assert shipper.drain(60, until=lambda: True) == lease.writer.ledger.backlog(sweeps.SWEEP_ID) > 0


class Taker:
    """Takes everything at once."""

    def ask(
        self, document: Mapping[str, Any] | None, seconds: float, cancelled: Callable[[], bool]
    ) -> dict[str, Any]:
        if document is not None:
            return {"batch": document["batch"], "created": {}, "refused": []}
        runs = {run: run for run in (sweeps.SWEEP_ID, *(sweeps.trial(number).key for number in range(3)))}
        return {"sweep_id": sweeps.SWEEP_ID, "created": runs, "batch": 0, "lost": 0}

    def end(self, seconds: float) -> None:
        pass

    def kill(self) -> None:
        pass


def test_the_backlog_is_counted_once_however_many_batches_it_has(lease: Lease, tmp_path: Path) -> None:
    """Counting it visits every pending event, so that a backlog would be shipped in quadratic time."""
    statements: list[str] = []
    listener.listen(
        lease.writer.ledger._engine,
        "checkout",
        lambda connection, *_: connection.set_trace_callback(statements.append),
    )
    batches = -(-len(lease.writer.ledger.pending(sweeps.SWEEP_ID, 100).events) // 4)
    shipper = _shipper(lease, tmp_path, batch=4, begin=lambda destination: Taker())
    statements.clear()
    shipper.start()
    assert shipper.drain(60) == 0
    shipper.close()
    reads = [statement for statement in statements if "FROM outbox" in statement and "SELECT" in statement]
    assert sum("ORDER BY outbox.seq" in read for read in reads) >= batches > 1
    assert sum("count(" in read for read in reads) == 1, "by `drain`, which returns the number"


class Slow(Taker):
    """Needs time for each point, and may write until its lease ends, as a process on a busy machine does."""

    def __init__(self, sizes: list[int], taken: list[int]) -> None:
        self._sizes, self._taken = sizes, taken

    def ask(
        self, document: Mapping[str, Any] | None, seconds: float, cancelled: Callable[[], bool]
    ) -> dict[str, Any]:
        count = sum(event["kind"] == "metrics" for event in (document or {}).get("events", ()))
        if count:
            self._sizes.append(count)
            time.sleep(0.05 * min(count, 9))
            if count > 9:
                raise child.DeliveryError("TimeoutError: the lease of the driver may have ended")
        answer = super().ask(document, seconds, cancelled)
        self._taken.append(answer["batch"])
        return {**answer, "batch": max(self._taken)}


def test_no_batch_is_larger_than_what_is_written_in_time(
    lease: Lease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be written in vain, until the lease ends that it was sent under."""
    monkeypatch.setattr(shipper_module, "BATCH_SECONDS", 0.2)
    sizes, taken = list[int](), list[int]()
    shipper = _shipper(lease, tmp_path, batch=2, begin=lambda destination: Slow(sizes, taken))
    shipper.start()
    assert shipper.drain(60) == 0
    shipper.close()
    assert max(sizes) <= 9, sizes
    assert sum(sizes) >= len(lease.writer.ledger.reports(sweeps.SWEEP_ID)) > 9


class Flooded(Taker):
    """Takes batches while the first trial reports more than one of them holds."""

    def __init__(self, ledger: Ledger, runs: list[set[str]]) -> None:
        self._ledger, self._runs = ledger, runs

    def ask(
        self, document: Mapping[str, Any] | None, seconds: float, cancelled: Callable[[], bool]
    ) -> dict[str, Any]:
        reported = {
            event["run"] for event in (document or {}).get("events", ()) if event["kind"] == "metrics"
        }
        if reported:
            self._runs.append(reported)
            key, first = sweeps.trial(0).key, 10**6 + 100 * len(self._runs)
            records = [
                ReportRecord(key, step, f"{key}.1", {"val/accuracy": 0.5}, 2e9 + step)
                for step in range(first, first + 100)
            ]
            with self._ledger.writer() as connection:
                connection.execute(insert(REPORT), [REPORTS.encode(record) for record in records])
                of_first = update(TRIAL).where(TRIAL.c.key == key)
                connection.execute(of_first.values(reported_at=records[-1].at))
                connection.commit()
        return super().ask(document, seconds, cancelled)


def test_runs_take_turns_while_more_is_reported_than_a_batch_holds(lease: Lease, tmp_path: Path) -> None:
    """If each batch began with the first run, the others would get nothing until it has ended."""
    runs: list[set[str]] = []
    begin = partial(Flooded, lease.writer.ledger, runs)
    shipper = _shipper(lease, tmp_path, batch=2, begin=lambda destination: begin())
    shipper.start()
    shipper.drain(60, until=lambda: len(runs) >= 20)
    shipper.close()
    assert set().union(*runs[:20]) == {sweeps.trial(number).key for number in range(3)}
    assert sweeps.trial(0).key in set().union(*runs[10:20]), "also its later reports"


class Stranger(Taker):
    """Answers in time and in order, but about something else."""

    def __init__(self, sweep_id: str, batch: int) -> None:
        self._named = {"sweep_id": sweep_id, "batch": batch}

    def ask(
        self, document: Mapping[str, Any] | None, seconds: float, cancelled: Callable[[], bool]
    ) -> dict[str, Any]:
        return {"created": {}, "refused": [], "lost": 0, **self._named}


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("sweep_id", "batch"), [("another-sweep", 0), (sweeps.SWEEP_ID, 2)])
def test_the_answer_to_another_batch_marks_nothing_as_delivered(
    lease: Lease, tmp_path: Path, caplog: pytest.LogCaptureFixture, sweep_id: str, batch: int
) -> None:
    shipper = _shipper(lease, tmp_path, begin=lambda destination: Stranger(sweep_id, batch))
    with caplog.at_level(logging.WARNING):
        shipper.start()
        assert shipper.drain(1.0) == 23
        shipper.close()
    assert "the delivering process must answer" in caplog.text


@pytest.mark.slow
def test_a_drain_ends_in_time_while_the_server_of_the_ledger_does_not_answer(
    postgres_server: postgres.Server, tmp_path: Path
) -> None:
    """A driver's ledger waits for its server without limit; the end of a driver waits for a few seconds."""
    url = postgres_server.empty_database()
    with closing(Ledger.open(url, reconnect_seconds=math.inf)) as ledger:
        sweeps.fill(ledger, tmp_path, [sweeps.trial(0)])
        with Lease(ledger, sweeps.SWEEP_ID) as lease:
            shipper, counted = _shipper(lease, tmp_path), list[int]()
            draining = threading.Thread(target=lambda: counted.append(shipper.drain(0.5)), daemon=True)
            postgres_server.stop()
            try:
                draining.start()
                draining.join(10)
                assert counted == [0], "no look at the outbox has counted any event yet"
            finally:
                postgres_server.start()
            for thread in threading.enumerate():
                if thread.name == "mlflow-count":
                    thread.join()  # it returns its connection


def _note(lease: Lease, target: str, text: str, tag: str) -> None:
    asked = Asked("ada", "note", sweeps.SWEEP_ID)
    change_note(lease.writer.ledger, sweeps.SWEEP_ID, target, NoteChange(text, [tag]), asked)


@pytest.mark.slow
def test_notes_are_descriptions_and_tags_of_runs_also_after_another_start(
    lease: Lease, shipper: Shipper, tmp_path: Path
) -> None:
    trial = f"{sweeps.SWEEP_ID}-1"
    ledger = lease.writer.ledger
    _note(lease, sweeps.SWEEP_ID, "A **baseline**", "paper")
    shipper.start()
    assert shipper.drain(60.0) == 0
    _note(lease, trial, "It spikes", "odd")
    assert ledger.backlog(sweeps.SWEEP_ID) == 1
    assert shipper.drain(60.0) == 0
    for _ in range(2):
        client = connect(f"sqlite:///{tmp_path / 'mlflow.db'}")
        runs = ledger.mlflow_runs(sweeps.SWEEP_ID)
        of_sweep, of_trial = (client.get_run(runs[run]).data.tags for run in (sweeps.SWEEP_ID, trial))
        described = of_sweep["mlflow.note.content"]
        assert described.startswith("A **baseline**\n\n")
        assert described.count("[Curves of its trials](") == 1
        assert ledger.description(sweeps.SWEEP_ID) in described
        assert (of_sweep["note.tags"], of_sweep["note.favourite"]) == ("paper", "false")
        assert (of_trial["mlflow.note.content"], of_trial["note.tags"]) == ("It spikes", "odd")
        lease.writer.redeliver()  # also the starts of the runs
        assert shipper.drain(60.0) == 0
