"""A sweep handed to a service by the command line, with real Ray: nothing that is killed loses anything."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from orchestrator.errors import Exit
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.sweeps.lease import holder
from tests.end_to_end.commands import SMALL, Commands, finish, wait_for

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

THREE = [*SMALL, "--set", "budget.trials=3"]
DELIVERS = f"{sys.executable}-morchestrator.tracking.deliver"


def test_a_submitted_sweep_outlives_its_terminal_the_service_and_its_driver(commands: Commands) -> None:
    service = commands.start("serve")
    wait_for(lambda: (commands.root / "serve.json").exists())
    terminal = commands.start(*THREE)
    ledger = commands.ledger
    wait_for(lambda: bool(ledger.sweeps()) and bool(ledger.reports(ledger.sweeps()[0].id)))
    [sweep] = ledger.sweeps()
    terminal.send_signal(signal.SIGINT)
    code, printed = finish(terminal)
    assert code == Exit.STILL_RUNNING
    assert f"{sweep.id} is still running" in printed

    driver = holder(ledger, sweep.id)
    assert driver is not None
    assert len(commands.titled(DELIVERS)) == 1
    assert commands.titled(DELIVERS)[0].ppid() == service.pid, "the drivers of a service share its process"
    service.kill()
    finish(service)
    os.kill(driver.pid, signal.SIGKILL)
    service = commands.start("serve")
    code, printed = commands.run("follow", sweep.id)
    service.terminate()
    assert finish(service)[0] == Exit.COMPLETE
    assert code == Exit.COMPLETE, printed
    entry = submissions.submission(ledger, sweep.id)
    assert entry is not None
    assert (entry.state, entry.starts) == ("ENDED", 2)
    trials = ledger.trials(sweep.id, "search")
    assert [trial.number for trial in trials] == [0, 1, 2]
    assert {trial.state for trial in trials} <= {"COMPLETE", "PRUNED"}
    ledger.close()
