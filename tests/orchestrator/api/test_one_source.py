"""Every view of a sweep names the same best trial, cost and time left."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from orchestrator.api.live import live
from orchestrator.api.local import LocalBackend
from orchestrator.api.workspace import Workspace
from orchestrator.cli.app import run_command
from orchestrator.client.answers import ComparedSweeps
from orchestrator.driver.publication import publication
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import CheckpointRecord
from orchestrator.report.history import read
from orchestrator.report.summary import summarise
from orchestrator.report.words import duration, number, time_left, used
from orchestrator.storage.paths import Paths
from orchestrator.web.app_state import AppState
from orchestrator.web.sweep_routes import all_sweeps, compare, show_live
from tests import sweeps

NOW = sweeps.CREATED + 400.0


@pytest.mark.parametrize("has_complete", [True, False])
def test_all_views_agree(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    has_complete: bool,
) -> None:
    """A running trial is the best so far; the complete ones, if any, give the final choice."""
    monkeypatch.setattr(Ledger, "now", lambda self: NOW)
    records = [each for each in sweeps.trials() if has_complete or each.state == "PRUNED"]
    paths = Paths(tmp_path)
    paths.create()
    with closing(Ledger.open(paths.ledger_url)) as ledger:
        folder = paths.checkpoints(sweeps.SWEEP_ID)
        sweeps.fill(ledger, folder, records, evaluated=has_complete)
        with Lease(ledger, sweeps.SWEEP_ID) as lease:
            running = sweeps.trial(8, "RUNNING", step=120, value=None, best_step=None, finished_at=None)
            sweeps.start_trial(lease.writer, running, folder)
            lease.writer.take_attempt(f"{running.key}.1", 30.0)
            row = CheckpointRecord(running.key, 120, "best", "/step", "ab", 1, {"val/accuracy": 0.99})
            lease.writer.record_report(f"{running.key}.1", 160, {"val/accuracy": 0.9}, [row], at=NOW - 1.0)

            history = read(ledger, sweeps.SWEEP_ID)
            summary = summarise(replace(history, read_at=NOW))
            detailed = LocalBackend(tmp_path).status(sweeps.SWEEP_ID)
            page = live(sweeps.SWEEP_ID, root=tmp_path)
            app = AppState(Workspace.at(tmp_path))
            answered = show_live(app, sweeps.SWEEP_ID)
            (listed,) = all_sweeps(app)
            [*_, note] = [
                event.payload["tags"]["mlflow.note.content"]
                for event in publication(history, summary, [], 0)
                if "mlflow.note.content" in event.payload.get("tags", {})
            ]
            assert run_command(["status", "--root", str(tmp_path)]) == 0
            printed = capsys.readouterr().out
            compared = compare(app, [sweeps.SWEEP_ID])
    best, left = summary.best, summary.time_left
    assert best is not None
    assert left is not None
    assert (best.label, best.value, best.state) == ("8", 0.99, "RUNNING")
    for view in (detailed, page.status, answered.status, listed):
        assert view.best == best
        assert view.cost == summary.cost
        assert view.time_left == left
        assert (view.chosen is None) == (summary.chosen is None)
        if view.chosen is not None and summary.chosen is not None:
            assert (view.chosen.key, view.chosen.value) == (summary.chosen.row.key, summary.chosen.row.value)
        assert asdict(view)["best"]["params"] == dict(running.params)
    assert page.status.improvement == answered.status.improvement == summary.improvement
    assert (
        f"best val/accuracy {number(best.value)} (trial {best.label}, running, step {best.step} of" in printed
    )
    assert time_left(left) in printed
    assert used(summary.cost) in printed
    assert used(summary.cost) in note
    chosen = summary.chosen.row.value if summary.chosen else best.value
    assert number(chosen) in note
    row = shown_row(compared)
    assert row["best"] == f"{number(answered.status.best_value)} (trial 8, running)"
    assert row["elapsed"] == duration(summary.cost.elapsed_seconds)
    assert row["compute"] == duration(summary.cost.compute_seconds)
    [result] = compared.document["results"]
    assert result["best"] == asdict(best)
    assert result["spent"]["elapsed_seconds"] == summary.cost.elapsed_seconds
    assert result["spent"]["compute_seconds"] == summary.cost.compute_seconds


def shown_row(compared: ComparedSweeps) -> dict[str, str]:
    """Return the cells of the only sweep of a comparison by their headings."""
    table = compared.tables[0]
    [row] = table.rows
    return dict(zip(table.header, row, strict=True))


@pytest.mark.parametrize("is_kept", [True, False])
def test_the_views_of_an_ended_sweep_agree(tmp_path: Path, is_kept: bool) -> None:
    """Its result stands for it, also after its checkpoints were removed, and not a better pruned trial."""
    records = [*sweeps.trials(), sweeps.trial(8, "PRUNED", value=0.99)]
    paths = sweeps.filled(tmp_path, records)
    with closing(Ledger.open(paths.ledger_url)) as ledger:
        with Lease(ledger, sweeps.SWEEP_ID) as lease:
            lease.writer.set_sweep_state("COMPLETE")
            if not is_kept:
                for checkpoint in ledger.checkpoints(sweeps.SWEEP_ID):
                    lease.writer.drop_checkpoint(checkpoint.trial_key, Path(checkpoint.path))
        app = AppState(Workspace.at(tmp_path))
        listed = show_live(app, sweeps.SWEEP_ID).status
        compared = compare(app, [sweeps.SWEEP_ID])
    assert listed.best is not None
    assert (listed.best.label, listed.best_trial) == ("8", f"{sweeps.SWEEP_ID}-7")
    [result] = compared.document["results"]
    assert result["best"] == asdict(listed)["chosen"]
    assert listed.cost is not None
    row = shown_row(compared)
    assert (row["best"], row["elapsed"], row["compute"]) == (
        number(listed.best_value),
        duration(listed.cost.elapsed_seconds),
        duration(listed.cost.compute_seconds),
    )
