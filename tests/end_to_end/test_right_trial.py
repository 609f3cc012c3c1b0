"""In a service with several sweeps at once, every report in the ledger is one of its own trial.

The service keeps worker processes for the next trial of any sweep. A process that two trials believed to be
theirs once mixed up their reports, and every trial looked COMPLETE: so these trials say whose they are.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from orchestrator.errors import Exit
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.sweeps.lease import holder
from orchestrator.ledger.sweeps.records import AttemptRecord, TrialRecord, attempt_number
from orchestrator.machines.head import running
from orchestrator.storage.paths import Paths
from tests.end_to_end.commands import LEAVE_SECONDS, Commands, finish, wait_for
from tests.end_to_end.identities import Search, read, require
from tests.shared_ray import own_ray, runtime_folder_of

pytestmark = pytest.mark.end_to_end

MARK = "ECHO_TEST_MARK"
"""Environment variable of everything that a test starts: scripts do not get those that begin with SWEEP_."""


@dataclass
class Served:
    """A running service and the Ray that it has for itself.

    Attributes:
        commands: that start it.
        ray: runtime folder of its Ray.
        environment: of every command.
    """

    commands: Commands
    ray: Path
    environment: Mapping[str, str]

    def submit(self, files: Sequence[Path]) -> list[str]:
        """Submit search-space files at once; return the ids of their sweeps, in this order."""
        started = [self.commands.start("submit", str(file), **self.environment) for file in files]
        for process in started:
            code, printed = finish(process)
            assert code == Exit.COMPLETE, printed
        with closing(self.commands.ledger) as ledger:
            ids = [one.sweep_id for one in submissions.submissions(ledger)]
        return [next(one for one in ids if one.startswith(f"{file.stem}-")) for file in files]

    def states(self, sweep_ids: Sequence[str]) -> set[str]:
        """Return the states of submissions, of which none may be parked."""
        with closing(self.commands.ledger) as ledger:
            found = [submissions.submission(ledger, sweep_id) for sweep_id in sweep_ids]
        states: set[str] = {entry.state for entry in found if entry is not None}
        assert "PARKED" not in states, [(entry.sweep_id, entry.cause) for entry in found if entry is not None]
        return states

    def wait_until_delivered(self, sweep_ids: Sequence[str], seconds: float) -> None:
        """Wait until every sweep has ended and MLflow has all of it."""
        wait_for(lambda: self.states(sweep_ids) == {"ENDED"}, seconds)
        with closing(self.commands.ledger) as ledger:
            wait_for(lambda: not any(map(ledger.backlog, sweep_ids)), 60)

    def processes(self) -> list[psutil.Process]:
        """Return everything that was started and lives: commands, drivers, Ray, its workers, and scripts.

        Ray's processes overwrite their environment with their titles, and so are known by their parents.
        """
        head = running(runtime_folder_of(self.ray))
        family: list[psutil.Process] = []
        try:
            if head is not None:
                family = [psutil.Process(head.pid), *psutil.Process(head.pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            pass  # it has just ended
        return [*{*family, *(one for one in psutil.process_iter() if self._is_ours(one))}]

    def _is_ours(self, one: psutil.Process) -> bool:
        try:
            alive = one.status() != psutil.STATUS_ZOMBIE
            return alive and one.environ().get(MARK) == self.commands.mark
        except psutil.Error:
            return False


@contextmanager
def served(commands: Commands, ray: Path, **environment: str) -> Iterator[Served]:
    """Start a service with a Ray of its own; end both, and require that nothing remains of them."""
    with own_ray(ray) as variables:
        service = Served(commands, ray, {**variables, MARK: commands.mark, **environment})
        process = commands.start("serve", **service.environment)
        try:
            wait_for(lambda: (commands.root / "serve.json").exists())
            yield service
            process.terminate()
            assert finish(process, 60)[0] == Exit.COMPLETE
        finally:
            known = service.processes()
            if process.poll() is None:
                process.kill()
            _end_drivers(commands)
    _, left = psutil.wait_procs(known, LEAVE_SECONDS)
    left = [*{*left, *service.processes()}]
    described = [" ".join(one.cmdline())[:120] for one in left if one.is_running()]
    for one in left:
        one.kill()
    assert not described, f"left running after {LEAVE_SECONDS:g} s: {described}"


def _end_drivers(commands: Commands) -> None:
    """Kill the drivers that a failed test has left, which outlive the service."""
    if not (commands.root / "sweeps.db").exists():
        return
    with closing(commands.ledger) as ledger:
        for sweep in ledger.sweeps():
            driver = holder(ledger, sweep.id)
            if driver is not None and psutil.pid_exists(driver.pid):
                psutil.Process(driver.pid).kill()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("warm", ["600", pytest.param("0", marks=pytest.mark.slow)])
def test_every_report_of_sweeps_that_share_warm_workers_is_of_its_own_trial(
    commands: Commands, temporary: Path, warm: str
) -> None:
    """Two sweeps of functions and one of a command, four trials at a time; and without warm workers."""
    own = commands.folder / "own"
    kinds = ["function", "function", "command"]
    files = [
        Search(kind, trials=6, steps=6, seed=seed, pause=0.15).write(own, f"echo{seed}")
        for seed, kind in enumerate(kinds)
    ]
    with served(commands, temporary, SWEEP_WARM=warm) as service:
        sweeps = service.submit(files)
        service.wait_until_delivered(sweeps, 450)
        require(*(read(commands.root, sweep_id) for sweep_id in sweeps), calm=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("devices", ["1", "2"])
def test_every_report_of_programs_in_slots_is_of_its_own_trial(
    commands: Commands, temporary: Path, devices: str
) -> None:
    """Two sweeps of programs, one after the other in the engine of one device, or on two devices at once."""
    files = [
        Search(
            "program", trials=8, steps=240, interval=20, seed=seed, resources="{gpu: 1/4, cpu: 0.1}"
        ).write(commands.folder / "own", f"echo{seed}")
        for seed in range(2)
    ]
    with served(commands, temporary, SWEEP_WARM="600", SWEEP_HOST_DEVICES=devices) as service:
        sweeps = service.submit(files)
        service.wait_until_delivered(sweeps, 600)
        require(*(read(commands.root, sweep_id) for sweep_id in sweeps))


# ---------------------------------------------------------------- kills

KILLS, SEED = 100, 20261128
PAUSED_BY, WITHIN = 2, 75.0
"""The service pauses all starts if three sweeps crash within a minute: so many are killed within so long."""


@dataclass
class Victims:
    """What may be killed now without using up what a trial or a sweep may lose.

    Only an attempt that has reported is killed, and only a driver whose sweep has reported since it started:
    otherwise the trial would fail, and the sweep be parked, as they should.

    Attributes:
        service: that runs the sweeps.
        sweeps: their ids.
        draw: of the kills.
        counts: kills so far, by kind.
        drivers: when the driver of which sweep was killed.
    """

    service: Served
    sweeps: Sequence[str]
    draw: random.Random
    counts: dict[str, int] = field(default_factory=dict)
    drivers: list[tuple[float, str]] = field(default_factory=list)

    @property
    def killed(self) -> int:
        """Return the number of kills so far."""
        return sum(self.counts.values())

    def kill_one(self) -> bool:
        """Kill something at random; return False if there is nothing to kill now."""
        kind = self.draw.choices(["driver", "worker", "script"], [16, 42, 42])[0]
        found = self._progressed()
        if not found:
            return False
        sweep_id, trial, attempt = self.draw.choice(found)
        victim: psutil.Process | None = None
        if kind == "driver":
            victim = self._driver(sweep_id)
        elif kind == "worker":
            victim = self._worker(sweep_id, trial, attempt)
        else:
            victim = self._script(trial)
        if victim is None:
            return False
        try:
            victim.kill()
        except psutil.NoSuchProcess:
            return False
        if kind == "driver":
            self.drivers.append((time.monotonic(), sweep_id))
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return True

    def _progressed(self) -> list[tuple[str, TrialRecord, AttemptRecord]]:
        """Return the running attempts that have reported, with their sweeps and trials."""
        with closing(self.service.commands.ledger) as ledger:
            return [
                (sweep_id, trial, attempt)
                for sweep_id in self.sweeps
                if holder(ledger, sweep_id) is not None
                for reporters in [{report.attempt_id for report in ledger.reports(sweep_id)}]
                for trial in ledger.trials_in_state(sweep_id, "RUNNING")
                for attempt in ledger.trial_attempts(trial.key)[-1:]
                if attempt.id in reporters and attempt.state == "RUNNING"
            ]

    def _driver(self, sweep_id: str) -> psutil.Process | None:
        """Return the driver of a sweep of which an attempt has reported, if it may be killed."""
        since = time.monotonic() - WITHIN
        others = {killed for at, killed in self.drivers if at > since} - {sweep_id}
        if len(others) >= PAUSED_BY:
            return None
        with closing(self.service.commands.ledger) as ledger:
            driver = holder(ledger, sweep_id)
        return _process(driver.pid) if driver is not None else None

    def _worker(self, sweep_id: str, trial: TrialRecord, attempt: AttemptRecord) -> psutil.Process | None:
        """Return the process that has written that it has started an attempt."""
        log = Paths(self.service.commands.root).log(sweep_id, trial.key).read_text()
        starts = re.findall(r"attempt (\d+): started at step \d+ on \S+, process (\d+)", log)
        pids = [int(pid) for number, pid in starts if int(number) == attempt_number(attempt.id)]
        worker = _process(pids[-1]) if pids else None
        return worker if worker is not None and _words(worker).startswith("ray::") else None

    def _script(self, trial: TrialRecord) -> psutil.Process | None:
        """Return the script that runs a trial, known by its hyperparameter."""
        value = float(trial.params["x"])
        for one in psutil.process_iter():
            if "of_echo" not in _words(one):
                continue
            try:
                if float(one.environ().get("SWEEP_PARAM_X", "-1")) == value and not _is_keeper(one):
                    return one
            except (psutil.Error, ValueError):
                continue
        return None


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def _words(one: psutil.Process) -> str:
    try:
        return " ".join(one.cmdline())
    except psutil.Error:
        return ""


def _is_keeper(one: psutil.Process) -> bool:
    return "keeper.py" in _words(one)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_every_report_is_of_its_own_trial_after_a_hundred_kills(commands: Commands, temporary: Path) -> None:
    """Drivers, workers and scripts of three sweeps are killed; each trial goes on from its own checkpoint."""
    own = commands.folder / "own"
    files = [
        Search(kind, trials=16, steps=30, seed=seed, pause=0.3).write(own, f"echo{seed}")
        for seed, kind in enumerate(["function", "function", "command"])
    ]
    with served(commands, temporary, SWEEP_WARM="600") as service:
        sweeps = service.submit(files)
        draw = random.Random(SEED)
        victims = Victims(service, sweeps, draw)
        while victims.killed < KILLS and service.states(sweeps) != {"ENDED"}:
            if victims.kill_one():
                require(*(read(commands.root, one, mlflow=False) for one in sweeps), finished=False)
            time.sleep(draw.uniform(0.5, 3.0))
        assert victims.killed == KILLS, f"the sweeps must last for {KILLS} kills, found {victims.counts}"
        assert min(victims.counts.values()) >= 8, victims.counts
        service.wait_until_delivered(sweeps, 900)
        require(*(read(commands.root, sweep_id) for sweep_id in sweeps))
        code, printed = finish(commands.start("check", **service.environment))
        assert code == Exit.COMPLETE, printed
