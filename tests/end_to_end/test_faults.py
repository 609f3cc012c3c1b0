"""Drivers are killed, interrupted and started twice: no finished trial is lost or run twice."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections import Counter

import boto3
import pytest
from moto.server import ThreadedMotoServer

from orchestrator.ledger.ledger import Ledger
from tests.end_to_end.commands import SMALL, Commands, finish, wait_for
from tests.end_to_end.test_trainables import written
from tests.orchestrator.tracking.proxy import Proxy

pytestmark = pytest.mark.end_to_end

RANDOM = [*SMALL, "--set", "budget.trials=4", "--set", "sampler={random: {seed: 1}}"]
UNSTOPPED = [*RANDOM, "--set", "scheduler={none: {}}"]
LONG = [*UNSTOPPED, "--set", "training.steps=100"]
ENDLESS = [*UNSTOPPED, "--set", "training.steps=100_000"]


def settled(ledger: Ledger) -> dict[str, object]:
    """Return the finished trials of the only sweep, with the fields that must never change again."""
    (sweep,) = ledger.sweeps()
    done = [trial for trial in ledger.trials(sweep.id) if trial.state in ("COMPLETE", "PRUNED", "FAILED")]
    return {trial.key: (trial.params, trial.value, trial.attempts) for trial in done}


def reports(commands: Commands) -> int:
    """Return the number of reports in the ledger; 0 if it does not exist yet."""
    if not (commands.root / "sweeps.db").exists():
        return 0
    return sum(len(commands.ledger.reports(sweep.id)) for sweep in commands.ledger.sweeps())


@pytest.mark.parametrize(
    ("kind", "each"), [("command", 8), pytest.param("network", 10, marks=pytest.mark.slow)]
)
def test_killed_and_run_again(commands: Commands, kind: str, each: int) -> None:
    """After SIGKILL the same command completes the sweep; no finished trial changes, no step is repeated."""
    of_command = [*("--set", "budget.trials=4"), *("--set", "resources.concurrent=2")]
    words = LONG if kind == "network" else [written(commands.folder / "own", kind, pause=0.3), *of_command]
    driver = commands.start(*words)
    # Two trials run at once, so that of all their reports one trial at least is finished, and another is not.
    wait_for(lambda: reports(commands) > 2 * each)
    os.kill(driver.pid, signal.SIGKILL)
    finish(driver)
    assert not commands.wait_until_gone()
    before = settled(commands.ledger)
    assert before, "some trials must be finished when the driver is killed"
    code, output = commands.run(*words)
    assert code == 0, output
    assert "Resuming" in output
    ledger = commands.ledger
    (sweep,) = ledger.sweeps()
    after = settled(ledger)
    assert before.items() <= after.items()
    assert len(after) == 4
    steps = Counter((report.trial_key, report.step) for report in ledger.reports(sweep.id))
    assert set(steps.values()) == {1}
    assert len(steps) == 4 * each
    code, output = commands.run("check", sweep.id)
    assert code == 0, output


@pytest.mark.slow
def test_sigterm_saves_and_leaves(commands: Commands) -> None:
    """An interrupted sweep exits with code 4, can be resumed by its id, and repeats no step."""
    driver = commands.start(*ENDLESS)
    wait_for(lambda: reports(commands) >= 3)
    os.kill(driver.pid, signal.SIGTERM)
    code, output = finish(driver, timeout=60)
    assert code == 4, output
    (sweep,) = commands.ledger.sweeps()
    assert sweep.state == "INTERRUPTED"
    unfinished = [trial for trial in commands.ledger.trials(sweep.id) if trial.state == "PREEMPTED"]
    assert unfinished
    for trial in unfinished:
        rows = commands.ledger.trial_checkpoints(trial.key)
        assert max(row.step for row in rows if row.kind == "last") == trial.step
    resumed = commands.start("resume", sweep.id[:12])
    wait_for(lambda: all(trial.attempts == 2 for trial in commands.ledger.trials(sweep.id)))
    code, output = commands.run("stop", sweep.id)
    assert code == 0, output
    code, output = finish(resumed, timeout=60)
    assert code == 4, output
    repeated = Counter((report.trial_key, report.step) for report in commands.ledger.reports(sweep.id))
    assert set(repeated.values()) == {1}


@pytest.mark.slow
def test_a_second_driver_leaves_and_names_the_first(commands: Commands) -> None:
    """A sweep has one driver; a second one exits with a line that names the first."""
    driver = commands.start(*ENDLESS)
    wait_for(lambda: reports(commands) >= 1)
    code, output = commands.run(*ENDLESS, timeout=30)
    assert code == 6, output
    assert str(driver.pid) in output
    code, output = commands.run("stop", commands.ledger.sweeps()[0].id)
    assert code == 0, output
    code, output = finish(driver, timeout=60)
    assert code == 4, output


@pytest.mark.slow
def test_a_killed_worker_goes_on_from_its_checkpoint(commands: Commands) -> None:
    """The death of one worker costs at most one interval of one trial."""
    driver = commands.start(*ENDLESS)
    wait_for(lambda: reports(commands) >= 6)
    workers = commands.titled("ray::Worker")
    assert workers
    workers[0].kill()
    ledger = commands.ledger
    (sweep,) = ledger.sweeps()
    wait_for(lambda: any(attempt.number == 2 for attempt in ledger.attempts(sweep.id)), seconds=60)
    (again,) = [attempt for attempt in ledger.attempts(sweep.id) if attempt.number == 2]
    wait_for(lambda: again.id in {report.attempt_id for report in ledger.trial_reports(again.trial_key)})
    code, output = commands.run("stop", sweep.id)
    assert code == 0, output
    code, output = finish(driver, timeout=60)
    assert code == 4, output
    causes = [attempt.cause for attempt in ledger.attempts(sweep.id) if attempt.cause != "interrupted"]
    assert causes == ["worker lost"]
    curve = [report.step for report in ledger.trial_reports(again.trial_key)]
    assert curve == list(range(10, 10 * len(curve) + 1, 10))


@pytest.mark.slow
def test_a_worker_saves_on_sigterm(commands: Commands) -> None:
    """A worker gets SIGTERM before its machine is taken away: no step is repeated, no attempt is charged."""
    driver = commands.start(*ENDLESS)
    wait_for(lambda: reports(commands) >= 6)
    commands.titled("ray::Worker")[0].terminate()
    ledger = commands.ledger
    (sweep,) = ledger.sweeps()

    def goes_on() -> bool:
        later = {attempt.id for attempt in ledger.attempts(sweep.id) if attempt.number > 1}
        return bool(later & {report.attempt_id for report in ledger.reports(sweep.id)})

    wait_for(goes_on)
    code, output = commands.run("stop", sweep.id)
    assert code == 0, output
    code, output = finish(driver, timeout=60)
    assert code == 4, output
    assert {attempt.cause for attempt in ledger.attempts(sweep.id)} <= {"interrupted", "node lost"}
    for trial in ledger.trials(sweep.id):
        log = (commands.root / "logs" / sweep.id / f"{trial.key}.log").read_text()
        steps = re.findall(r": step (\d+):", log)
        assert len(steps) == len(set(steps))


@pytest.mark.slow
def test_an_outage_of_the_store_during_the_test_evaluation_pauses_the_sweep(commands: Commands) -> None:
    """The search is over; the checkpoint to evaluate is in the store alone, as on another machine."""
    server, proxy = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False), Proxy()
    server.start()
    proxy.target, proxy.mode = server.get_host_and_port()[1], "pass"
    keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
    shared = {
        **keys,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}",
        "SWEEP_CHECKPOINTS": "s3://sweeps/checkpoints",
    }
    own = {"aws_access_key_id": "id", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=shared["AWS_ENDPOINT_URL"], **own).create_bucket(Bucket="sweeps")
    driver = commands.start(*RANDOM, "--set", "budget.trials=1", **shared)
    wait_for(lambda: reports(commands) >= 1)
    ledger = commands.ledger
    (sweep,) = ledger.sweeps()
    wait_for(lambda: ledger.states(sweep.id) == {"COMPLETE": 1})
    proxy.mode = "hang up"
    shutil.rmtree(commands.root / "checkpoints" / sweep.id)
    wait_for(lambda: ledger.sweeps()[0].state == "PAUSED")
    _, output = commands.run("status", sweep.id)
    assert "the checkpoint store does not answer since" in output
    proxy.mode = "pass"
    code, output = finish(driver, timeout=180)
    assert code == 0, output
    assert "Traceback" not in output
    assert ledger.sweeps()[0].state == "COMPLETE"
    assert len(ledger.evaluations(sweep.id)) == 1
    assert [attempt.cause for attempt in ledger.attempts(sweep.id)] == [None]
    code, output = commands.run("check", sweep.id, **shared)
    assert code == 0, output
    proxy.close()
    server.stop()


@pytest.mark.slow
def test_an_unreachable_mlflow_costs_no_trial(commands: Commands) -> None:
    """The records that MLflow has not received wait in the ledger, and the driver prints their number."""
    code, output = commands.run(
        *RANDOM,
        "--set",
        "budget.trials=2",
        MLFLOW_TRACKING_URI="http://127.0.0.1:9",
        SWEEP_TRACKING_PATIENCE="3",
    )
    assert code == 0, output
    assert "wait for MLflow" in output
    (sweep,) = commands.ledger.sweeps()
    assert commands.ledger.backlog(sweep.id) > 0
