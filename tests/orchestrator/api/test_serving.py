"""Handing sweeps to the service, and how they are shown while no process drives them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator import Exit, Sweep, queue, status, sweeps
from orchestrator.api import priorities, serving
from orchestrator.api.local import LocalBackend
from orchestrator.api.queue_order import UNSERVED
from orchestrator.client.following import follow
from orchestrator.errors import BadInput
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.queue_settings import asked_to_stop
from orchestrator.ledger.queue.submissions import SubmissionWriter
from tests import sweeps as examples
from tests.orchestrator.ledger.examples import create_sweep, writer

FILE = Path(__file__).parents[3] / "search_spaces" / "retrieval.yaml"


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep.load(FILE, profile="laptop", root=tmp_path / "mlruns", data=tmp_path / "data")


def change(sweep: Sweep, **columns: object) -> None:
    """Change the submission of a sweep as the service does."""
    with sweep.workspace.ledger() as ledger:
        seen = submissions.submission(ledger, sweep.id)
        assert seen is not None
        assert SubmissionWriter(ledger, writer(ledger, "serve").token).change(seen, **columns)


def test_a_submitted_sweep_is_shown_before_it_begins(sweep: Sweep) -> None:
    submission, is_added = serving.submit(sweep)
    assert (submission.sweep_id, is_added) == (sweep.id, True)
    root = sweep.workspace.paths.root
    assert [(row.id, row.state) for row in sweeps(root=root)] == [(sweep.id, "QUEUED")]
    shown = status("retrieval", root=root)
    assert (shown.state, shown.metric, shown.progress.wanted) == (
        "QUEUED",
        "val/accuracy",
        sweep.specification.budget.trials,
    )
    [entry] = queue(root=root)
    assert (entry.sweep, entry.position, entry.why) == (sweep.id, 1, UNSERVED)
    assert Sweep.find("retrieval", root=root).specification.document() == sweep.specification.document()


def test_a_parked_sweep_is_shown_with_its_cause_until_it_is_released(sweep: Sweep) -> None:
    serving.submit(sweep)
    change(sweep, state="PARKED", crashes=5, cause="MemoryError")
    root = sweep.workspace.paths.root
    shown = status(root=root)
    assert (shown.state, shown.reason) == (
        "PARKED",
        "crashed 5 times without a report, the last time: MemoryError",
    )
    [entry] = queue(root=root)
    assert entry.position is None
    assert priorities.resume("retrieval", root=root)[0] == sweep.id
    assert status(root=root).state == "QUEUED"


def test_a_sweep_that_waits_can_be_stopped(sweep: Sweep) -> None:
    serving.submit(sweep)
    assert Sweep.find("retrieval", root=sweep.workspace.paths.root).stop().driver is None
    with sweep.workspace.ledger() as ledger:
        assert asked_to_stop(ledger, sweep.id) is not None


def test_a_setting_to_try_is_checked(sweep: Sweep) -> None:
    """Against the space, the settings that wait, the trials, the budget and the state of the sweep."""
    serving.submit(sweep)
    space = sweep.specification.feasible.draw(random.Random(0))
    with pytest.raises(BadInput, match="must be searched"):
        sweep.try_setting({"depth": 3})
    with pytest.raises(BadInput, match="must lie in its search"):
        sweep.try_setting({"learning_rate": 1e9})
    assert sweep.try_setting({"learning_rate": 1e-3}).before == 0
    assert sweep.try_setting(space).before == 1
    with pytest.raises(BadInput, match="must differ from the settings that already wait"):
        sweep.try_setting(space)
    budget = sweep.specification.budget.trials
    for _ in range(budget - 2):
        sweep.try_setting({"learning_rate": 1e-3})
    with pytest.raises(BadInput, match=f"0 created and {budget} requested"):
        sweep.try_setting({"learning_rate": 1e-3})
    with sweep.workspace.ledger() as ledger:
        create_sweep(ledger, replace(examples.sweep_record(state="COMPLETE"), id=sweep.id))
    with pytest.raises(BadInput, match="must not have finished"):
        sweep.try_setting({"learning_rate": 1e-3})


def test_the_same_key_submits_one_sweep_and_new_another(sweep: Sweep) -> None:
    first, _ = serving.submit(sweep, key="monday")
    assert serving.submit(sweep, new=True, key="monday") == (first, False)
    second, is_added = serving.submit(sweep, new=True)
    assert is_added
    assert second.sweep_id == f"{first.sweep_id}-2"


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ({"state": "ENDED", "code": 3}, Exit.SOME_FAILED),
        ({"state": "ENDED", "code": 2, "cause": "bad data"}, Exit.BAD_INPUT),
        ({"state": "PARKED", "crashes": 5, "cause": "it crashed"}, Exit.RESUMABLE),
    ],
)
def test_following_ends_with_the_code_and_the_cause(
    sweep: Sweep, columns: dict[str, object], code: Exit
) -> None:
    serving.submit(sweep)
    change(sweep, **columns)
    printed: list[str] = []
    assert follow(LocalBackend(sweep.workspace.paths.root), sweep.id, printed.append) == code
    assert str(columns.get("cause", "")) in "".join(printed)


def test_a_driver_that_has_left_while_no_service_runs_is_not_shown_as_starting(sweep: Sweep) -> None:
    """A sweep is stopped after its service was killed: nobody has judged the end of its driver."""
    serving.submit(sweep)
    root = sweep.workspace.paths.root
    change(sweep, state="STARTED", starts=1)
    assert status(root=root).reason == "its driver is starting"
    record = examples.sweep_record(id=sweep.id, document=sweep.specification.document(), finished_at=None)
    with sweep.workspace.ledger() as ledger:
        create_sweep(ledger, replace(record, state="RUNNING"))
        submissions.begin(ledger, sweep.id, 1, Holder.here())
        write = writer(ledger, sweep.id)
        write.set_sweep_state("INTERRUPTED", "stopped by `stop` on node1")
        submissions.end(ledger, sweep.id, 1, Exit.RESUMABLE, "stopped")
    shown = status(root=root)
    assert (shown.state, shown.reason) == ("INTERRUPTED", "stopped by `stop` on node1")
    [entry] = queue(root=root)
    assert "starting" not in entry.why
