"""A sweep that an earlier version left half finished is resumed and completed.

`earlier/` holds the sweep `half-0382c659` as commit 2129c67 left it when its driver was killed: its ledger
and MLflow's rows as SQL, and its checkpoints. Trial 0 is complete, trial 1 pruned, trial 2 has reported step
200 and has saved step 300 without reporting it, trial 3 was not proposed yet. MLflow has 2 of the 17 events.
"""

from __future__ import annotations

import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.ledger import changes
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.rows import CHECKPOINTS
from orchestrator.ledger.transaction import Transaction
from orchestrator.tracking.database import connect
from tests.end_to_end.commands import Commands
from tests.orchestrator.ledger.examples import writer

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

EARLIER = Path(__file__).with_name("earlier")
SWEEP_ID = "half-0382c659"
ROOT = "/srv/sweeps/mlruns"
"""The root that the earlier version wrote to; the ledger holds it in the paths of checkpoints."""


@pytest.fixture
def half_finished(commands: Commands) -> Commands:
    """Restore the sweep under the root of the commands."""
    root = commands.root
    root.mkdir(parents=True)
    with tarfile.open(EARLIER / "checkpoints.tar.xz") as archive:
        archive.extractall(commands.folder, filter="data")
    with closing(sqlite3.connect(root / "sweeps.db")) as ledger:
        ledger.executescript((EARLIER / "sweeps.sql").read_text())
    _restore_mlflow(root)
    _move_checkpoints(root)
    return commands


def _restore_mlflow(root: Path) -> None:
    connect(f"sqlite:///{root / 'mlflow.db'}")
    rows = (EARLIER / "mlflow.sql").read_text().replace(ROOT, str(root))
    with closing(sqlite3.connect(root / "mlflow.db")) as database:
        for table in ("alembic_version", "experiments", "workspaces"):
            database.execute(f"DELETE FROM {table}")
        database.commit()
        database.executescript(f"BEGIN; {rows} COMMIT;")


def _move_checkpoints(root: Path) -> None:
    """Record the checkpoints at the new root; the rest stays as the earlier version wrote it."""

    def move(tx: Transaction, key: str) -> None:
        changes.trial_of(tx, key)
        for record in changes.checkpoints_of(tx, key):
            tx.change(CHECKPOINTS, record, path=record.path.replace(ROOT, str(root)))

    with closing(Ledger.open(f"sqlite:///{root / 'sweeps.db'}")) as ledger:
        for trial in ledger.trials(SWEEP_ID):
            writer(ledger, SWEEP_ID)._write(lambda tx, key=trial.key: move(tx, key))  # type: ignore[misc]


def test_a_half_finished_sweep_of_an_earlier_version_is_completed(half_finished: Commands) -> None:
    with closing(half_finished.ledger) as ledger:
        before = {trial.key: trial for trial in ledger.trials(SWEEP_ID)}
        assert [trial.state for trial in before.values()] == ["COMPLETE", "PRUNED", "RUNNING"]
    code, output = half_finished.run("resume", SWEEP_ID)
    assert code == 0, output
    assert "2 trials done, 1 to go on" in output
    assert f"Deleted orphaned checkpoint {half_finished.root}" in output
    code, output = half_finished.run("check", "--json")
    assert code == 0, output
    assert json.loads(output)["findings"] == []
    with closing(half_finished.ledger) as ledger:
        sweep = ledger.sweep(SWEEP_ID)
        assert sweep is not None
        assert sweep.state == "COMPLETE"
        after = {trial.key: trial for trial in ledger.trials(SWEEP_ID)}
        assert len(after) == 4
        assert {trial.state for trial in after.values()} <= {"COMPLETE", "PRUNED"}
        for key in list(before)[:2]:
            assert after[key] == before[key]
        steps = [report.step for report in ledger.trial_reports(f"{SWEEP_ID}-2")]
        assert steps == sorted(set(steps))
        assert steps[:2] == [100, 200]
        assert after[f"{SWEEP_ID}-2"].attempts == 2
        assert ledger.backlog(SWEEP_ID) == 0
