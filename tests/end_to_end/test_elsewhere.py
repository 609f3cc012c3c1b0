"""The verbs on another machine, which reaches the ledger but not the folder of the sweep."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator

import pytest

from benchmarks.faults.site import PLAIN, SPACE
from orchestrator.ledger.ledger import Ledger
from tests import postgres
from tests.end_to_end.commands import ROOT, Commands, finish, wait_for
from tests.end_to_end.network import NetworkHost, Switch, marks

pytestmark = marks(1200)
DRIVER_HOST, OTHER_HOST = socket.gethostname(), "host-1"


@pytest.fixture
def elsewhere(switch: Switch, commands: Commands) -> Iterator[NetworkHost]:
    """Yield another machine, on which the folder of the sweep is empty."""
    commands.root.mkdir()
    host = NetworkHost(switch, 1, [commands.root])
    yield host
    host.end()


def test_status_logs_stop_and_resume_ask_the_ledger(
    elsewhere: NetworkHost, commands: Commands, postgres_server: postgres.Server
) -> None:
    """The other machine shows and stops the sweep, and resumes it from the store that both machines reach."""
    postgres_server.empty_database()
    url = postgres_server.socket_url
    stores = {"SWEEP_LEDGER": url, "SWEEP_CHECKPOINTS": f"file://{commands.folder}/store"}
    own = {
        "SWEEP_ROOT": str(commands.root / "own"),
        "SWEEP_DATA": str(commands.shared / "data"),
        "JAX_COMPILATION_CACHE_DIR": os.environ["JAX_COMPILATION_CACHE_DIR"],
        "SWEEP_TEST_MARK": commands.mark,
        "PYTHONPATH": str(ROOT),
    }

    def ask(*words: str, **environment: str) -> tuple[int, str]:
        command = ["sh", "-c", 'cd / && exec "$@"', "sh", sys.executable, "-m", "orchestrator.sweep", *words]
        return finish(elsewhere.run(command, **{**own, **environment}))

    file = commands.folder / "space.yaml"
    file.write_text(SPACE.format(**{**PLAIN, "trials": 3, "steps": 120_000}))
    driver = commands.start(str(file), "--quiet", "--set", "training.interval=500", **stores)
    ledger = Ledger.open(url)

    def reported() -> bool:
        return any(ledger.reports(sweep.id) for sweep in ledger.sweeps())

    wait_for(lambda: reported() or driver.poll() is not None, seconds=400)
    assert driver.poll() is None, driver.communicate()[0]
    (sweep,) = ledger.sweeps()
    key = ledger.reports(sweep.id)[0].trial_key
    code, output = ask("status", SWEEP_LEDGER=url)
    assert code == 0, output
    assert f"{sweep.id}: RUNNING" in output
    assert f"driven by process {driver.pid} on {DRIVER_HOST}" in output
    code, output = ask("list", SWEEP_LEDGER=url)
    assert sweep.id in output, output
    code, output = ask("show", key, SWEEP_LEDGER=url)
    assert f"attempt 1: RUNNING on {DRIVER_HOST}" in output, output
    code, output = ask("logs", key, SWEEP_LEDGER=url)
    assert code == 0, output
    assert f"attempt 1: launched on {DRIVER_HOST}" in output
    assert "attempt 1: step " in output
    assert f"The attempts on {DRIVER_HOST} come from the ledger;" in output
    code, output = ask("resume", sweep.id, **stores)
    assert code == 6, output
    assert f"process {driver.pid} on {DRIVER_HOST}" in output
    code, output = ask("stop", sweep.id, SWEEP_LEDGER=url)
    assert code == 0, output
    code, printed = finish(driver)
    assert code == 4, printed
    code, output = ask("resume", sweep.id, SWEEP_LEDGER=url)
    assert code == 2, output
    assert "must be on this machine or in the shared store" in output
    code, output = ask("resume", sweep.id, **stores)
    assert code == 0, output
    assert {trial.state for trial in ledger.trials(sweep.id)} <= {"COMPLETE", "PRUNED"}
    with_report = {report.attempt_id for report in ledger.reports(sweep.id)}
    nodes = {attempt.node for attempt in ledger.attempts(sweep.id) if attempt.id in with_report}
    assert nodes == {DRIVER_HOST, OTHER_HOST}, "the ledger learns the machine of an attempt from its reports"
    code, output = ask("logs", key, SWEEP_LEDGER=url)
    assert "started at step" in output, output
    assert "started at step 0 " not in output, "the trial must resume from its checkpoint"
    assert f"The attempts on {DRIVER_HOST} come from the ledger;" in output
    ledger.close()
