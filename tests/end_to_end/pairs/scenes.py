"""A root, a Ray and a service of one test of a pair of features, and what may be done to them.

What a test does, it does once the ledger holds a number of reports, and never after a time: it is the same
on a slow machine.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from orchestrator.errors import Exit
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.queue_settings import ask_to_stop
from orchestrator.ledger.sweeps.lease import holder
from orchestrator.ledger.sweeps.records import ReportRecord, TrialRecord
from orchestrator.machines.head import running
from orchestrator.storage.paths import Paths
from tests.end_to_end.commands import ROOT, Commands, finish, wait_for
from tests.end_to_end.identities import Allowed, Evidence, faults, read, require
from tests.shared_ray import own_ray, runtime_folder_of

MARK = "SCENE_TEST_MARK"
"""Environment variable of all that a test starts: scripts do not get those that begin with SWEEP_."""

PATIENCE = 400.0
"""Seconds for which a test waits for a condition; it holds within a few, unless the machine is busy."""

LEAVING = 60.0
"""Seconds in which all processes of a test must have ended."""

_STARTED = re.compile(r"attempt (\d+): started at step (\d+) on \S+, process (\d+)")


@dataclass
class Scene:
    """Commands with a root and a Ray of their own.

    Attributes:
        commands: that are started.
        ray: runtime folder of their Ray.
        environment: of every command.
    """

    commands: Commands
    ray: Path
    environment: Mapping[str, str]

    # ---------------------------------------------------------------- commands

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command."""
        return self.commands.start(*arguments, **self.environment)

    def run(self, *arguments: str, code: Exit = Exit.COMPLETE) -> str:
        """Run a command to its end, which must have a code; return what it has printed."""
        found, printed = self.commands.run(*arguments, timeout=PATIENCE, **self.environment)
        assert found == code, f"{arguments}: the exit code must be {code}, found {found}\n{printed}"
        return printed

    def begin(self, *arguments: str, reports: int) -> tuple[subprocess.Popen[str], str]:
        """Start a driver; return it with the id of its sweep once that has so many reports."""
        driver = self.start(*arguments)
        name = Path(arguments[0]).stem if arguments[0].endswith(".yaml") else arguments[1].partition("-")[0]

        def has_begun() -> bool:
            require_running(driver)
            return bool(self.ids(name)) and len(self.reports(self.ids(name)[0])) >= reports

        wait_for(has_begun, PATIENCE)
        return driver, self.ids(name)[0]

    def serve(self) -> subprocess.Popen[str]:
        """Start the service; return it once it runs."""
        service = self.start("serve")
        file = Paths(self.commands.root).service

        def runs() -> bool:
            require_running(service)
            found = Holder.read_file(file) if file.exists() else None
            return found is not None and found.pid == service.pid

        wait_for(runs, PATIENCE)
        return service

    def submit(self, *files: Path) -> list[str]:
        """Submit search-space files at once; return the ids of their sweeps, in this order."""
        for process in [self.start("submit", str(file)) for file in files]:
            code, printed = finish(process, PATIENCE)
            assert code == Exit.COMPLETE, printed
        return [self.ids(file.stem, submitted=True)[0] for file in files]

    # ---------------------------------------------------------------- what the ledger says

    def _ask(self, question: Callable[[Ledger], list]) -> list:
        if not (self.commands.root / "sweeps.db").exists():
            return []
        with closing(self.commands.ledger) as ledger:
            return question(ledger)

    def ids(self, name: str, *, submitted: bool = False) -> list[str]:
        """Return the ids of the sweeps of a file."""

        def found(ledger: Ledger) -> list[str]:
            if submitted:
                return [entry.sweep_id for entry in submissions.submissions(ledger)]
            return [sweep.id for sweep in ledger.sweeps()]

        return [one for one in self._ask(found) if one.startswith(f"{name}-")]

    def reports(self, sweep_id: str) -> list[ReportRecord]:
        """Return the reports of a sweep."""
        return self._ask(lambda ledger: ledger.reports(sweep_id))

    def trials(self, sweep_id: str) -> list[TrialRecord]:
        """Return the trials of a sweep."""
        return self._ask(lambda ledger: ledger.trials(sweep_id, "search"))

    def causes(self, sweep_id: str) -> set[str]:
        """Return why attempts of a sweep have ended."""
        return {one.cause for one in self._ask(lambda ledger: ledger.attempts(sweep_id)) if one.cause}

    def wait_for_reports(self, sweep_id: str, count: int) -> None:
        """Wait until a sweep has so many reports."""
        wait_for(lambda: len(self.reports(sweep_id)) >= count, PATIENCE)

    def wait_until_delivered(self, *sweep_ids: str) -> None:
        """Wait until the submissions of sweeps have ended, and MLflow has all of them."""

        def have_ended() -> bool:
            entries = self._ask(lambda ledger: [submissions.submission(ledger, one) for one in sweep_ids])
            parked = [(entry.sweep_id, entry.cause) for entry in entries if entry.state == "PARKED"]
            assert not parked, f"no sweep may be parked, found {parked}"
            return all(entry.state == "ENDED" for entry in entries)

        wait_for(have_ended, PATIENCE)
        wait_for(lambda: not any(self._ask(lambda ledger: [*map(ledger.backlog, sweep_ids)])), PATIENCE)

    def starts(self, sweep_id: str) -> int:
        """Return how many drivers of a submitted sweep have been started."""
        [entry] = self._ask(lambda ledger: [submissions.submission(ledger, sweep_id)])
        return int(entry.starts)

    def workers(self, sweep_id: str) -> dict[str, int]:
        """Return by attempt id which process has started it, as the logs say."""
        logs = {one.key: Paths(self.commands.root).log(sweep_id, one.key) for one in self.trials(sweep_id)}
        return {
            f"{key}.{number}": int(pid)
            for key, log in logs.items()
            if log.exists()
            for number, _, pid in _STARTED.findall(log.read_text())
        }

    # ---------------------------------------------------------------- what is done to them

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Kill a command that must still run, with no chance to save anything."""
        require_running(process)
        process.kill()
        finish(process)

    def kill_driver(self, sweep_id: str) -> None:
        """Kill the driver of a submitted sweep."""
        with closing(self.commands.ledger) as ledger:
            driver = holder(ledger, sweep_id)
        assert driver is not None, f"{sweep_id} must have a driver"
        os.kill(driver.pid, signal.SIGKILL)

    def stop(self, driver: subprocess.Popen[str], sweep_id: str) -> None:
        """Ask a driver to stop, as `sweep stop` does, without the seconds in which that command starts."""
        require_running(driver)
        with closing(self.commands.ledger) as ledger:
            ask_to_stop(ledger, sweep_id)
        code, printed = finish(driver, PATIENCE)
        assert code == Exit.RESUMABLE, printed

    # ---------------------------------------------------------------- the end

    def require(
        self,
        *sweep_ids: str,
        allowed: Callable[[Evidence], Mapping[str, Allowed]] | None = None,
        calm: bool = False,
    ) -> list[Evidence]:
        """Require all of `identities.require` of sweeps that have ended, and that `check` finds nothing.

        Args:
            sweep_ids: of the sweeps.
            allowed: returns what an attempt may say; see `identities.require`.
            calm: whether nothing was killed.

        Returns:
            What is known of each sweep.
        """
        found = [read(self.commands.root, one) for one in sweep_ids]
        may = None if allowed is None else {key: one for some in found for key, one in allowed(some).items()}
        require(*found, allowed=may, calm=calm)
        self.run("check")
        return found

    def processes(self) -> list[psutil.Process]:
        """Return all that was started and lives: commands, drivers, Ray, its workers and the scripts.

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
def scene(commands: Commands, ray: Path, **environment: str) -> Iterator[Scene]:
    """Yield a scene with warm workers; end its Ray, and require that no process remains.

    Args:
        commands: with a root of their own.
        ray: a folder with a short path.
        environment: further variables of all commands.
    """
    known: list[psutil.Process] = []
    this = Scene(commands, ray, {})
    try:
        with own_ray(ray) as variables:
            own = {**variables, MARK: commands.mark, "SWEEP_WARM": "600", "PYTHONPATH": str(ROOT)}
            this.environment = {**own, **environment}
            try:
                yield this
            except BaseException:
                _kill(this)
                raise
            known = this.processes()
    finally:
        _require_end(this, known)


def _require_end(this: Scene, known: Sequence[psutil.Process]) -> None:
    """Require that nothing remains of what was started; end what does."""
    _, left = psutil.wait_procs(known, LEAVING)
    left = [*{*left, *this.processes()}]
    described = [_described(one) for one in left if one.is_running()]
    for one in left:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    assert not described, f"left running after {LEAVING:g} s: {described}"


def _described(one: psutil.Process) -> str:
    try:
        return " ".join(one.cmdline())[:120]
    except psutil.Error:
        return f"process {one.pid}"


def _kill(this: Scene) -> None:
    """Kill all that a failed test has left, and what that starts meanwhile."""
    for _ in range(10):
        if not (left := this.processes()):
            return
        for one in left:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(left, 2)


def leave(service: subprocess.Popen[str]) -> None:
    """End a service, which must do so well."""
    service.terminate()
    code, printed = finish(service, PATIENCE)
    assert code == Exit.COMPLETE, printed


def require_running(process: subprocess.Popen[str]) -> None:
    """Require that a command has not ended."""
    if process.poll() is not None:
        raise AssertionError(
            f"a command must still run, found code {process.returncode}: {finish(process)[1]}"
        )


def edited(file: Path, before: str, after: str) -> None:
    """Replace a text that a file must hold."""
    text = file.read_text()
    assert before in text, f"{file.name} must hold {before!r}"
    file.write_text(text.replace(before, after))


def held(script: Path, step: int) -> Path:
    """Let each trial of a function or a command wait before a step until a file exists; return that file."""
    go = script.with_suffix(".go")
    edited(
        script,
        "        time.sleep(",
        f"        while step >= {step} and not os.path.exists({str(go)!r}):\n"
        "            time.sleep(0.05)\n"
        "        time.sleep(",
    )
    return go


# ---------------------------------------------------------------- what a rule must have decided


def in_order(evidence: Evidence) -> list[ReportRecord]:
    """Return the reports in the order of their arrival, in which a rule has seen them."""
    return sorted(evidence.reports, key=lambda report: report.at)


def halved(evidence: Evidence, rungs: Sequence[int]) -> dict[str, int]:
    """Return which trials successive halving by two must have stopped, and at which step, by the reports.

    A trial goes on from a rung if its loss is not above the median of those that had reached it before.

    Args:
        evidence: of the sweep; every step is reported.
        rungs: the steps at which it decides.
    """
    losses: dict[int, list[float]] = {rung: [] for rung in rungs}
    stopped: dict[str, int] = {}
    for report in in_order(evidence):
        if report.step not in losses:
            continue
        before, loss = sorted(losses[report.step]), report.metrics["val/loss"]
        if before and loss > (before[(len(before) - 1) // 2] + before[len(before) // 2]) / 2:
            stopped.setdefault(report.trial_key, report.step)
        losses[report.step].append(loss)
    return stopped


def pruned(evidence: Evidence) -> dict[str, int]:
    """Return which trials have been stopped early, and at which step."""
    return {one.key: one.step for one in evidence.trials if one.state == "PRUNED"}


def better_at(evidence: Evidence, period: int) -> dict[tuple[str, int], set[str]]:
    """Return the trials that a trial may copy at a step: the better half of those that have reached it.

    Args:
        evidence: of a sweep with population based training, quantile a half, and a report of every step.
        period: steps between two comparisons.
    """
    losses: dict[int, dict[str, float]] = {}
    found: dict[tuple[str, int], set[str]] = {}
    for report in in_order(evidence):
        if report.step % period:
            continue
        here = losses.setdefault(report.step, {})
        here[report.trial_key] = report.metrics["val/loss"]
        ranked = sorted(here, key=lambda key: here[key])
        share = len(ranked) // 2
        if report.trial_key in ranked[len(ranked) - share :]:
            found[report.trial_key, report.step] = set(ranked[:share])
    return found


def repeated(*found: Evidence) -> list[str]:
    """Return where a log has a line that is not in the ledger: a step that an interruption has cost."""
    return [fault for fault in faults(*found, calm=True) if "must have one attempt" not in fault]
