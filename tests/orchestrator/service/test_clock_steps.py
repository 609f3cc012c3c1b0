"""A clock that is set neither extends nor ends a wait of the service, nor changes which crashes it counts."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from orchestrator.api.queue_order import places
from orchestrator.api.status import overview
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.pool import claims
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.queue_settings import asked_to_stop
from orchestrator.ledger.queue.submissions import ROOM, Submission, SubmissionRequest, SubmissionWriter
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.tables import START_PAUSE
from orchestrator.service.service import Service, lease_name
from orchestrator.service.start_order import JITTER, LONGEST_BACKOFF_SECONDS, WITHOUT_SHARE_SECONDS
from orchestrator.service.supervision import BACKOFF_SECONDS, PAUSE_SECONDS
from orchestrator.storage.paths import Paths
from orchestrator.system import ClockSetting, System
from tests.orchestrator.ledger.examples import sweep_record, trial_record, writer

HOUR = 3600.0
DOCUMENT = {"resources": {"cpu": 1.0, "gpu": 1.0}, "budget": {"trials": 8}, "task": {"name": "listops"}}
STEPS = pytest.mark.parametrize("step", [-HOUR, -30.0, 30.0, HOUR])


class Clocks(System):
    """A machine whose clocks a test moves: `seconds` passes, and `skew` is what the wall clock is ahead."""

    def __init__(self) -> None:
        self.seconds, self.skew, self.boots = 1_000.0, 0.0, 1

    def time(self) -> float:
        return 1_790_000_000.0 + self.seconds + self.skew

    def since_boot(self) -> float:
        return self.seconds

    def boot(self) -> str:
        return f"boot {self.boots}"


class Machine:
    """A machine with a service whose drivers end at once with code 1.

    Attributes:
        clocks: Clocks of the machine.
        ledger: Ledger of the sweeps.
        started: The sweeps whose drivers were started, in this order.
        before_crash: What a driver does.
    """

    def __init__(self, url: str, paths: Paths) -> None:
        self.clocks, self._paths = Clocks(), paths
        self.ledger = Ledger.open(url, system=self.clocks)
        self.started: list[str] = []
        self.before_crash: Callable[[], None] = lambda: None

    @contextmanager
    def service(self) -> Iterator[Callable[[], None]]:
        """Hold the lease of a service, and return what polls it twice: for the ends, then for the starts."""
        with Lease(self.ledger, lease_name(self.ledger), lambda line: None) as lease:
            service = Service(self.ledger, lease, self._paths, lambda line: None, start=self._start)

            def poll() -> None:
                service.poll()
                service.poll()

            yield poll

    def _start(self, submission: Submission) -> subprocess.Popen[bytes]:
        self.started.append(submission.sweep_id)
        self.before_crash()
        process = subprocess.Popen(["false"])
        process.wait()
        return process

    def submit(self, *sweep_ids: str) -> None:
        for sweep_id in sweep_ids:
            order = SubmissionRequest("ada", {"name": sweep_id, **DOCUMENT}, "", {}, None, "c0ffee")
            submissions.submit(self.ledger, order, lambda _, sweep_id=sweep_id: sweep_id)  # type: ignore[misc]

    def submission(self, sweep_id: str) -> Submission:
        entry = submissions.submission(self.ledger, sweep_id)
        assert entry is not None
        return entry

    def is_paused(self) -> bool:
        """Return True if the service has paused all starts."""
        with self.ledger.reader() as connection:
            return connection.execute(select(START_PAUSE.c.since)).first() is not None


@pytest.fixture
def machine(url: str, tmp_path: Path) -> Iterator[Machine]:
    made = Machine(url, Paths(tmp_path / "mlruns"))
    yield made
    made.ledger.close()


@STEPS
def test_a_step_of_the_clock_leaves_a_backoff_as_long_as_it_was(machine: Machine, step: float) -> None:
    machine.submit("a-1")
    with machine.service() as poll:
        poll()  # started, and crashed
        assert (machine.started, machine.submission("a-1").crashes) == (["a-1"], 1)
        machine.clocks.skew += step
        machine.clocks.seconds += 0.7 * BACKOFF_SECONDS
        poll()
        assert machine.started == ["a-1"], "the wait is not over"
        machine.clocks.seconds += 0.6 * BACKOFF_SECONDS
        poll()
        assert machine.started == ["a-1"] * 2


@STEPS
def test_a_step_of_the_clock_leaves_a_pause_as_long_as_it_was(machine: Machine, step: float) -> None:
    """Another service of the same boot counts the pause as the first one did."""
    machine.submit("a-1", "a-2", "a-3")
    with machine.service() as poll:
        poll()
        poll()
    assert sorted(machine.started) == ["a-1", "a-2", "a-3"]
    machine.submit("b-1")
    machine.clocks.skew += step
    machine.clocks.seconds += PAUSE_SECONDS - 1.0
    with machine.service() as poll:
        poll()
        assert len(machine.started) == 3, "the pause is not over"
        machine.clocks.seconds += 1.1
        poll()
        assert len(machine.started) == 4


@STEPS
def test_a_step_of_the_clock_does_not_separate_crashes(machine: Machine, step: float) -> None:
    machine.submit("a-1", "a-2")
    with machine.service() as poll:
        poll()
        machine.clocks.skew += step
        machine.clocks.seconds += 0.5
        machine.submit("a-3")
        poll()
    assert machine.is_paused()


@STEPS
def test_a_step_of_the_clock_does_not_join_crashes(machine: Machine, step: float) -> None:
    """Two sweeps have crashed more than a minute before the third one, and wait for long."""
    machine.submit("a-1", "a-2")
    with machine.service() as poll:
        poll()
    with Lease(machine.ledger, lease_name(machine.ledger), lambda line: None) as lease:
        for sweep_id in ("a-1", "a-2"):
            seen = machine.submission(sweep_id)
            later = seen.next_try + LONGEST_BACKOFF_SECONDS
            assert SubmissionWriter(machine.ledger, lease.token).change(seen, next_try=later)
    machine.clocks.seconds += PAUSE_SECONDS + 1.0
    machine.clocks.skew += step
    machine.submit("a-3")
    with machine.service() as poll:
        poll()
    assert sorted(machine.started) == ["a-1", "a-2", "a-3"]
    assert not machine.is_paused()


@STEPS
def test_a_report_counts_however_the_clock_was_set(machine: Machine, step: float) -> None:
    """The sweep has reported before its first drivers, which do not report, and so does the last driver."""
    machine.submit("a-1")
    own = writer(machine.ledger, "a-1")
    own.create_sweep(sweep_record(id="a-1"))
    own.add_trial(trial_record(sweep_id="a-1"))
    report(machine, 10)
    with machine.service() as poll:
        machine.clocks.skew += step
        poll()
        machine.clocks.seconds += LONGEST_BACKOFF_SECONDS
        poll()
        assert machine.submission("a-1").crashes == 2, "no driver has reported"

        def step_and_report() -> None:
            machine.clocks.skew += step
            report(machine, 20)

        machine.before_crash = step_and_report
        machine.clocks.seconds += LONGEST_BACKOFF_SECONDS
        poll()
        assert machine.submission("a-1").crashes == 1, "the last one has"


@STEPS
def test_a_step_of_the_clock_does_not_change_when_a_driver_without_a_share_leaves(
    machine: Machine, step: float
) -> None:
    """The ten minutes begin with its last report: here five after the start, before the clock is set."""
    machine.submit("a-1")
    lease = Lease(machine.ledger, "a-1", lambda line: None)
    with machine.service() as poll, ExitStack() as stack:
        machine.before_crash = lambda: stack.enter_context(lease)
        poll()
        lease.writer.create_sweep(sweep_record(id="a-1"))
        lease.writer.add_trial(trial_record(sweep_id="a-1"))
        claims.set_owner(machine.ledger, "ada", most_gpu_hours=0.0)
        machine.clocks.seconds += WITHOUT_SHARE_SECONDS / 2
        lease.writer.record_report(lease.writer.start_attempt("a-1-0").id, 10, {"val/accuracy": 0.5})
        poll()
        machine.clocks.skew += step
        machine.clocks.seconds += WITHOUT_SHARE_SECONDS - 1.0
        poll()
        assert asked_to_stop(machine.ledger, "a-1") is None
        machine.clocks.seconds += 1.0
        poll()
        assert asked_to_stop(machine.ledger, "a-1") == ROOM


@STEPS
def test_the_next_try_is_shown_by_the_clock_as_it_is_set_now(machine: Machine, step: float) -> None:
    machine.submit("a-1")
    with machine.service() as poll:
        poll()
        machine.clocks.skew += step
        seen = machine.submission("a-1")
        left = seen.by(ClockSetting.here(machine.clocks)).next_try - machine.clocks.time()
        assert 0.0 < left <= (1.0 + JITTER) * BACKOFF_SECONDS
        at = time.strftime("%H:%M:%S", time.localtime(machine.clocks.time() + left))
        begin = f"QUEUED: starts again at {at}, because: "
        [place] = places(machine.ledger)
        status = overview(machine.ledger, None, seen, {})
        assert place.why is not None
        assert place.why.startswith(begin)
        assert f"{status.state}: {status.reason}" == place.why


def report(machine: Machine, step: int) -> None:
    """Let an attempt of the only trial of a-1 report a step."""
    own = writer(machine.ledger, "a-1")
    own.record_report(own.start_attempt("a-1-0").id, step, {"val/accuracy": 0.5})


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_after_a_boot_no_wait_is_longer_than_the_longest_backoff(machine: Machine, step: float) -> None:
    """Nothing connects the clocks of two boots."""
    machine.submit("a-1")
    with machine.service() as poll:
        poll()
    machine.clocks.skew += step
    machine.clocks.boots += 1
    machine.clocks.seconds = 10.0
    with machine.service() as poll:
        poll()
    assert machine.started == ["a-1"] * 2


def test_times_are_converted_between_settings_of_one_boot_alone() -> None:
    before, after = ClockSetting("one", 1_000.0), ClockSetting("one", 4_600.0)
    assert before.converted(1_010.0, after) == 4_610.0
    assert before.converted(1_010.0, replace(after, boot="two")) == 1_010.0
    assert ClockSetting.read(before.write()) == before
