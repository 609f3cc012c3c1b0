"""`check` finds reports of other trials, missing ones and shared processes, and nothing in a right sweep."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.api import maintenance
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import (
    CheckpointRecord,
    Segment,
    attempt_number,
    sweep_id_of,
    trial_key,
    trial_key_of,
)
from orchestrator.ledger.sweeps.writer import SweepWriter
from orchestrator.storage.paths import Paths
from orchestrator.upkeep.log_check import check_logs
from tests.orchestrator.ledger.examples import SetClock, create_sweep, sweep_record, trial_record, writer
from trainables import checkpoint

A, B = "echo-0000000a", "other-0000000b"
STEPS = 6
FUNCTION = {"function": "echo.py:train", "folder": "/home/somebody"}
RESOURCES = {"cpu": 0.25, "gpu": 0.0}


@dataclass
class Root:
    """A ledger, and the logs of the trials beside it."""

    paths: Paths
    clock: SetClock
    ledger: Ledger
    writers: dict[str, SweepWriter] = field(default_factory=dict)

    def sweep(self, sweep_id: str, trainable: Any = FUNCTION, gpu: float = 0.0) -> None:
        """Add a running sweep, of a network if `trainable` is None."""
        document = {
            "trainable": trainable,
            "training": {"steps": STEPS, "interval": 1},
            "resources": {**RESOURCES, "gpu": gpu},
        }
        create_sweep(
            self.ledger, sweep_record(id=sweep_id, document=document, facts={}, created_at=self.clock.now)
        )
        self.writers[sweep_id] = writer(self.ledger, sweep_id)

    def start(self, sweep_id: str, number: int, process: int | None, *, logs: bool = True) -> str:
        """Start the next attempt of a trial, which is new or not; its process writes the first line."""
        key = trial_key(sweep_id, number)
        write = self.writers[sweep_id]
        if key not in {trial.key for trial in self.ledger.trials(sweep_id)}:
            write.add_trial(trial_record(number, key=key, sweep_id=sweep_id, total_steps=STEPS))
        attempt = write.start_attempt(key)
        write.take_attempt(attempt.id)
        if logs:
            self.log(attempt.id, f"started at step 0 on node-1, process {process or os.getpid()}")
        return attempt.id

    def log(self, attempt: str, *lines: str) -> None:
        """Append lines to the log of an attempt's trial."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.clock.now))
        with self.file(attempt).open("a", encoding="utf-8") as log:
            log.writelines(f"{stamp}Z attempt {attempt_number(attempt)}: {line}\n" for line in lines)

    def file(self, attempt: str) -> Path:
        """Return the log of an attempt's trial."""
        key = trial_key_of(attempt)
        file = self.paths.log(sweep_id_of(key), key)
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    def train(self, attempt: str, step: int, metrics: Mapping[str, float]) -> None:
        """Write the line of a report."""
        self.clock.now += 1
        self.log(attempt, f"step {step}: " + ", ".join(f"{k} {v:.6g}" for k, v in metrics.items()))

    def commit(
        self, attempt: str, step: int, metrics: Mapping[str, float], worker_of: str | None = None
    ) -> None:
        """Record a report and its checkpoint, which the worker of an attempt has saved."""
        self.clock.now += 0.25
        key, owner = trial_key_of(attempt), trial_key_of(worker_of or attempt)
        folder = self.paths.trial_checkpoints(sweep_id_of(owner), owner)
        saved = checkpoint.save(folder / f"step-{step:09d}", {"a": np.zeros(1)}, {"step": step})
        row = CheckpointRecord(key, step, "last", str(saved.folder), saved.digest, saved.bytes, {})
        best = [CheckpointRecord(key, step, "best", row.path, row.digest, row.bytes, {})] if step == 1 else []
        measured = {**metrics, "seconds/train": 0.123, "seconds/evaluate": 0.0, "slots/busy": 0.5}
        self.writers[sweep_id_of(key)].record_report(attempt, step, measured, [row, *best], node="node-1")

    def report(self, attempt: str, *steps: int, **metrics: float) -> None:
        """Train to some steps, and record the reports."""
        for step in steps:
            values = metrics or value_of(attempt, step)
            self.train(attempt, step, values)
            self.commit(attempt, step, values)

    def end(self, attempt: str, state: Any = "COMPLETE", attempt_state: Any = "ENDED") -> None:
        """End an attempt and its trial."""
        self.clock.now += 1
        value = 0.5 if state in {"COMPLETE", "PRUNED"} else None
        cause = "why" if state in {"FAILED", "WAITING", "PREEMPTED"} else None
        write = self.writers[sweep_id_of(trial_key_of(attempt))]
        write.end_attempt(attempt, attempt_state, cause, state, value, 1)

    def complete(self, sweep_id: str, number: int, process: int) -> str:
        """Complete a trial in one attempt."""
        attempt = self.start(sweep_id, number, process)
        self.report(attempt, *range(1, STEPS + 1))
        self.end(attempt)
        return attempt

    def finish(self, *sweeps: str) -> None:
        """End sweeps."""
        for sweep_id in sweeps or self.writers:
            self.writers[sweep_id].set_sweep_state("COMPLETE")

    def found(self, *sweeps: str) -> dict[str, list[str]]:
        """Return what is wrong with the trials of some sweeps, or of all, by their keys."""
        records = [row for row in self.ledger.sweeps() if not sweeps or row.id in sweeps]
        problems: dict[str, list[str]] = {}
        for finding in check_logs(self.ledger, records, self.paths):
            problems.setdefault(finding.where, []).append(finding.problem)
        return problems


def value_of(attempt: str, step: int) -> dict[str, float]:
    """Return metrics that no other trial has."""
    own = sum(map(ord, trial_key_of(attempt))) / 1000
    return {"val/loss": 1 / step, "echo": own}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    """Return a root with the sweeps A and B of a function, which run at the same time."""
    paths, clock = Paths(tmp_path), SetClock(1_790_000_000.0)
    with closing(Ledger.open(paths.ledger_url, system=clock)) as ledger:
        root = Root(paths, clock, ledger)
        root.sweep(A)
        root.sweep(B)
        yield root


def lend_twice(root: Root, *, begun: bool = True) -> tuple[str, str]:
    """Let a trial of B take over the worker of one of A, which then gets every second report of it."""
    root.complete(A, 0, 10)
    root.complete(B, 0, 11)
    robbed = root.start(A, 1, 12, logs=begun)
    if begun:
        root.report(robbed, 1)
    thief = root.start(B, 1, 12)
    for step in range(1, STEPS + 1):
        values = value_of(thief, step)
        root.train(thief, step, values)
        root.commit(robbed if step % 2 == 0 else thief, step, values, thief)
    root.end(robbed)
    root.end(thief)
    root.finish()
    return trial_key_of(robbed), trial_key_of(thief)


REMEDY = "run its file again with `--new`"


def test_reports_of_another_trial_are_found(root: Root) -> None:
    robbed, thief = lend_twice(root)
    found = root.found()
    assert found.keys() == {robbed, thief}
    origin = f"has reports that its own log lacks: steps 2, 4, 6 in the log of {thief}"
    assert any(each.startswith(origin) and each.endswith(REMEDY) and A in each for each in found[robbed])


def test_reports_that_another_trial_has_got_are_found(root: Root) -> None:
    _, thief = lend_twice(root)
    (missing,) = [each for each in root.found()[thief] if "without the reports" in each]
    must = "is COMPLETE without the reports of steps 2, 4, 6; do not trust the results of"
    assert missing.startswith(f"{must} {B}")
    assert missing.endswith(REMEDY)


def test_two_attempts_in_one_process_are_found(root: Root) -> None:
    robbed, thief = lend_twice(root)
    found = root.found()
    for one, other in ((robbed, thief), (thief, robbed)):
        pair = f"attempt 1 of {one} and attempt 1 of {other} both used process 12 on node-1"
        assert any(f"shared a process: {pair}; " in each for each in found[one])


def test_a_sweep_is_checked_against_those_that_ran_beside_it(root: Root) -> None:
    """`check` with the name of one sweep tells whose reports its trials have."""
    robbed, thief = lend_twice(root)
    assert root.found(A).keys() == {robbed}
    assert any(f"in the log of {thief}" in each for each in root.found(A)[robbed])
    assert root.found(B).keys() == {thief}


def test_a_worker_that_was_taken_before_its_trial_began_is_found(root: Root) -> None:
    """That trial has no log: what it has got is in the log of the other one, which lacks it."""
    robbed, thief = lend_twice(root, begun=False)
    assert not root.paths.log(A, robbed).exists()
    assert root.found().keys() == {robbed, thief}


def test_values_that_no_log_has_are_found(root: Root) -> None:
    """The log of the trial that lacks them is gone."""
    robbed, thief = lend_twice(root)
    root.paths.log(B, thief).unlink()
    (problem,) = [each for each in root.found()[robbed] if "reports" in each]
    assert problem.startswith("has reports that its own log lacks: steps 2, 4, 6 in no log; ")


def test_checkpoints_of_another_trial_are_found(root: Root) -> None:
    """Without any log: the folder of a checkpoint is that of the trial whose worker has saved it."""
    robbed, thief = lend_twice(root)
    for log in (root.paths.root / "logs").glob("*/*.log"):
        log.unlink()
    assert root.found().keys() == {robbed}
    (problem,) = root.found()[robbed]
    places = f"step 4 in the folder of {thief} and step 6 in the folder of {thief}"
    assert problem.startswith(f"has checkpoints in other folders: {places}; ")


def test_another_trial_of_the_same_sweep_is_found(root: Root) -> None:
    first, second = root.start(A, 0, 10), root.start(A, 1, 11)
    root.report(first, 1)
    for step in range(1, STEPS + 1):
        values = value_of(second, step)
        root.train(second, step, values)
        root.commit(first if step in {2, 3} else second, step, values)
    root.report(first, 4, 5, 6)
    root.end(first)
    root.end(second)
    root.finish(A)
    found = root.found(A)
    assert [each.partition(";")[0] for each in found[f"{A}-0"]] == [
        f"has reports that its own log lacks: steps 2, 3 in the log of {A}-1"
    ]
    assert [each.partition(";")[0] for each in found[f"{A}-1"]] == [
        "is COMPLETE without the reports of steps 2, 3"
    ]


def test_a_report_that_nobody_has_is_found(root: Root) -> None:
    """The trial that got it had reported the step before, and the ledger keeps one report of a step."""
    for number in range(3):
        root.complete(A, number, 10)
    attempt = root.start(A, 3, 10)
    for step in range(1, STEPS + 1):
        root.train(attempt, step, value_of(attempt, step))
        if step not in {3, STEPS}:
            root.commit(attempt, step, value_of(attempt, step))
    root.end(attempt)
    root.finish(A)
    (problem,) = root.found(A)[f"{A}-3"]
    assert "without the reports of steps 3, 6;" in problem


def test_a_network_reports_at_each_multiple_of_the_interval(root: Root) -> None:
    """Whatever its log says: it is gone."""
    root.sweep("net-0000000c", trainable=None)
    attempt = root.start("net-0000000c", 0, 10, logs=False)
    root.report(attempt, 1, 2, 4, 5, 6)
    root.file(attempt).unlink()
    root.end(attempt)
    root.finish()
    (problem,) = root.found("net-0000000c").popitem()[1]
    assert "without the reports of step 3;" in problem


def test_the_command_names_the_trials(root: Root) -> None:
    """With all that it finds beside; nothing is wrong with a sweep that ran alone."""
    robbed, thief = lend_twice(root)
    root.clock.now += 3600
    root.sweep("alone-0000000d")
    root.complete("alone-0000000d", 0, 12)
    root.finish()
    wrong = {finding.where for finding in maintenance.check(root=root.paths.root).findings}
    assert {robbed, thief} <= wrong
    assert "alone-0000000d-0" not in wrong


# ---------------------------------------------------------------- what is right


def healthy(root: Root) -> None:
    for number in range(3):
        root.complete(A, number, 10)
        root.complete(B, number, 11)


def killed_drivers(root: Root) -> None:
    """The commit of a report is lost with its driver, and a later attempt reports other steps."""
    for number in range(3):
        root.complete(A, number, 10)
    first = root.start(A, 3, 11)
    root.report(first, 1, 2)
    root.train(first, 3, value_of(first, 3))
    root.writers[A].lose_attempts()
    root.writers[A].set_sweep_state("INTERRUPTED", "driver lost")
    root.clock.now += 600
    root.writers[A] = writer(root.ledger, A)
    root.writers[A].set_sweep_state("RUNNING")
    second = root.start(A, 3, 12)
    root.report(second, 4, 5, 6)
    root.end(second)


def reported_again(root: Root) -> None:
    first = root.start(A, 0, 11)
    root.report(first, 1, 2)
    root.train(first, 3, value_of(first, 3))
    root.end(first, "PREEMPTED", "LOST")
    second = root.start(A, 0, 12)
    root.report(second, 3, 4, 5, 6)
    root.end(second)


def retried(root: Root) -> None:
    for step in (1, 3):
        attempt = root.start(A, 0, 10)
        root.report(attempt, step)
        root.log(attempt, "Traceback (most recent call last):", "ValueError: step 2: echo 0.5")
        root.end(attempt, "WAITING", "FAILED")
    third = root.start(A, 0, 10)
    root.report(third, 4, 5, 6)
    root.end(third)
    for number in (1, 2):
        attempt = root.start(A, number, 10)
        root.report(attempt, 1)
        root.end(attempt, "FAILED", "FAILED")


def pruned(root: Root) -> None:
    healthy(root)
    attempt = root.start(A, 3, 10)
    root.report(attempt, 1, 2)
    root.train(attempt, 3, value_of(attempt, 3))
    root.train(attempt, 4, value_of(attempt, 4))
    root.end(attempt, "PRUNED")


def population(root: Root, trainable: Any = FUNCTION) -> None:
    """A trial goes on from another one's checkpoint, at its own step or ahead of it."""
    root.sweep("pbt-0000000e", trainable)
    donor = root.complete("pbt-0000000e", 0, 10)
    for number, seen, step in ((1, (1, 2), 4), (2, (1, 2, 3, 4), 4)):
        first = root.start("pbt-0000000e", number, 11)
        root.report(first, *seen)
        root.train(first, seen[-1] + 1, value_of(first, seen[-1] + 1))
        path = str(root.paths.root)
        copied = CheckpointRecord(trial_key_of(first), step, "last", path, "ab" * 32, 1, {"echo": 1.0})
        segment = Segment(step, trial_key_of(donor), {"learning_rate": 0.15})
        assert root.writers["pbt-0000000e"].exploit(first, segment, copied) is not None
        second = root.start("pbt-0000000e", number, 11)
        for later in range(step + 1, STEPS + 1):
            root.report(second, later)
        root.end(second)


def population_of_networks(root: Root) -> None:
    population(root, None)


def engines(root: Root) -> None:
    """The slots of an engine have one process."""
    root.sweep("slots-0000000f", None, gpu=0.25)
    attempts = [root.start("slots-0000000f", number, 10) for number in range(3)]
    for step in range(1, STEPS + 1):
        for attempt in attempts:
            root.report(attempt, step)
    for attempt in attempts:
        root.end(attempt)


def one_process_after_the_other(root: Root) -> None:
    """A worker has the next trial as soon as the one before has ended; then its id is used again."""
    first = root.complete(A, 0, 10)
    assert root.ledger.trial_attempts(trial_key_of(first))[0].ended_at == root.clock.now
    root.complete(B, 0, 10)
    abandoned = root.start(A, 1, 10)
    root.report(abandoned, 1)
    root.clock.now += 3600  # its driver is dead, and so is its process
    root.complete(B, 1, 10)
    root.end(abandoned, "PREEMPTED", "LOST")


def logs_gone(root: Root) -> None:
    """The same values in each trial, as of an accuracy: those without a log are not those of another one."""
    for sweep_id in (A, B):
        for number in range(3):
            attempt = root.start(sweep_id, number, 10)
            root.report(attempt, *range(1, STEPS + 1), accuracy=0.5)
            root.end(attempt)
    root.file(f"{A}-0.1").unlink()
    root.file(f"{A}-1.1").write_text("")
    root.file(f"{B}-0.1").unlink()
    os.mkfifo(root.file(f"{B}-0.1"))
    root.file(f"{B}-1.1").unlink()
    root.file(f"{B}-1.1").mkdir()


def all_logs_gone(root: Root) -> None:
    healthy(root)
    for log in (root.paths.root / "logs").glob("*/*.log"):
        log.unlink()


def logs_of_two_machines(root: Root) -> None:
    """An attempt on another machine wrote its own log there."""
    first = root.start(A, 0, 10)
    root.report(first, 1, 2)
    root.end(first, "PREEMPTED", "LOST")
    before = root.file(first).read_bytes()
    second = root.start(A, 0, 10)
    root.report(second, 3, 4, 5, 6)
    root.end(second)
    root.file(first).write_bytes(before)


def end_of_a_log_lost(root: Root) -> None:
    """With the power, and with it the driver; the next attempt goes on at what the ledger has."""
    first = root.start(A, 0, 10)
    root.report(first, 1)
    before = root.file(first).read_bytes()
    root.report(first, 2, 3)
    root.file(first).write_bytes(before)
    root.writers[A].lose_attempts()
    second = root.start(A, 0, 10)
    root.report(second, 4, 5, 6)
    root.end(second)


@dataclass(frozen=True)
class Damaged:
    """A log of a right trial in whose middle something else is."""

    what: bytes

    def __call__(self, root: Root) -> None:
        attempt = root.complete(A, 0, 10)
        lines = root.file(attempt).read_bytes().splitlines(keepends=True)
        root.file(attempt).write_bytes(b"".join([*lines[:2], self.what, *lines[4:]]))


def printed(root: Root) -> None:
    """Functions print what looks like reports: beside each, between them, and of attempts and processes."""
    for sweep_id in (A, B):
        for number in range(3):
            attempt = root.start(sweep_id, number, 10 + number)
            other = value_of(f"{B if sweep_id == A else A}-{number}.1", 1)["echo"]
            root.log(attempt, "started at step 0 on node-1, process 1", "step 3: echo 0.5")
            for step in (2, 4, 6):
                root.log(attempt, f"step {step - 1}: val/loss 0.5, echo 1", f"step {step - 1}: loss")
                root.log(attempt, f"step {step}: val/loss {1 / step:.6g}, echo 7", f"step {step}: ")
                root.log(attempt, f"step {step}: val/loss {1 / step:.6g}, echo {other}")
                root.report(attempt, step)
            root.log(attempt, f"step {10**15}: val/loss 1, echo 1", f"step {'9' * 400}: val/loss 1, echo 1")
            root.log(attempt, "2026-11-28 12:00:00Z attempt 1: step 5: val/loss 0.2, echo 0.1")
            root.end(attempt)
            root.clock.now += 5


def strange_numbers(root: Root) -> None:
    values = (-0.0, math.nan, math.inf, -math.inf, 0.1234567890123456, 1e-320, 123456789.0, 1e300, 999999.5)
    for number in range(3):
        attempt = root.start(A, number, 10)
        for step in range(1, STEPS + 1):
            root.report(attempt, step, **{f"m{i}": value for i, value in enumerate(values)})
        root.end(attempt)


def strange_names(root: Root) -> None:
    names = ["a, b", "c: d", "e 1, f", "e", "e 1", " ", "", "größe", "step 3: x", "https://user:word@host/x"]
    names += ["g\nh", "i\u2028j", "seconds/own", "seconds/train"]
    for number in range(3):
        attempt = root.start(A, number, 10)
        for step in range(1, STEPS + 1):
            metrics = {name: step / 7 + i + number for i, name in enumerate(names)}
            shown = ", ".join(f"{name} {value:.6g}" for name, value in metrics.items())
            root.clock.now += 1
            root.log(attempt, *f"step {step}: {shown}".replace("user:word@", "").splitlines())
            root.commit(attempt, step, metrics)
        root.end(attempt)


def secrets(root: Root) -> None:
    """What the log hides cannot be compared."""
    attempt = root.start(A, 0, 10)
    root.clock.now += 1
    root.log(attempt, "step 1: ***/loss 0.5")
    root.commit(attempt, 1, {"swordfish/loss": 0.5})
    root.end(attempt, "PRUNED")


CONTROLS: list[Callable[[Root], None]] = [
    healthy,
    killed_drivers,
    reported_again,
    retried,
    pruned,
    population,
    population_of_networks,
    engines,
    one_process_after_the_other,
    logs_gone,
    all_logs_gone,
    logs_of_two_machines,
    end_of_a_log_lost,
    printed,
    strange_numbers,
    strange_names,
    secrets,
]
DAMAGES = [
    b"",
    b"\x00" * 400 + b"\n",
    b"\xff\xfe\xfd\n",
    b"x" * 5_000_000 + b"\n",
    b"2026-11-28 12:00",
    b"2026-99-99 99:99:99Z attempt 1: step 2: val/loss 1, echo 1\nhow\n",
]


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.__name__)
def test_what_is_right_is_not_found(root: Root, control: Callable[[Root], None]) -> None:
    control(root)
    root.finish()
    assert root.found() == {}


@pytest.mark.parametrize("what", DAMAGES[1:], ids=range(len(DAMAGES) - 1))
def test_a_damaged_log_is_not_compared(root: Root, what: bytes) -> None:
    Damaged(what)(root)
    root.finish()
    assert root.found() == {}


def test_lines_that_are_missing_in_an_intact_log_are_found(root: Root) -> None:
    """So that the damages above are what keeps them from being found."""
    Damaged(DAMAGES[0])(root)
    root.finish()
    assert list(root.found()) == [f"{A}-0"]


def test_trials_that_a_driver_runs_are_not_found(root: Root) -> None:
    """The line of a report may precede its commit, and that of a trial the row of its state."""
    healthy(root)
    running = root.start(A, 3, 10)
    root.report(running, 1, 2)
    root.train(running, 3, value_of(running, 3))
    root.train(running, 4, value_of(running, 4))
    root.commit(running, 4, {"val/loss": 0.25, "echo": 0.1})
    with Lease(root.ledger, A):
        assert root.found() == {}
    root.writers[A] = writer(root.ledger, A)
    root.end(running, "FAILED", "FAILED")
    assert list(root.found()) == [f"{A}-3"]


def test_a_damaged_ledger_is_left_to_the_other_checks(root: Root) -> None:
    lend_twice(root)
    with root.ledger.writer() as connection:
        connection.exec_driver_sql("UPDATE trial SET value = 2")
        connection.commit()
    assert root.found() == {}
