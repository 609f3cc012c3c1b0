"""The verbs with `--server`, against a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.cli.app import run_command
from orchestrator.ledger.settings import settings
from tests import sweeps
from tests.orchestrator.web import server
from tests.orchestrator.web.server import FILE, QUEUED


def test_the_verbs_reach_a_service_over_http(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(FILE)
    with server.served(tmp_path / "mlruns") as client:
        monkeypatch.setenv("SWEEP_TOKEN", client.tokens["ada"])

        def run(*words: str, code: int = 0) -> str:
            assert run_command([*words, "--server", client.address]) == code
            return capsys.readouterr().out

        sweep_id = run("submit", str(file), "--set", "budget.trials=3").strip()
        assert sweep_id in run("list")
        assert {entry["id"] for entry in json.loads(run("list", "--json"))} >= {sweep_id, QUEUED}
        assert "QUEUED" in run("status", sweep_id)
        assert "class idle" in run("move", sweep_id, "idle")
        shown = run("queue").splitlines()
        assert shown[shown.index(sweep_id) + 1].split() == ["2", "ada", "idle", "0", "0", "3", "unknown"]
        assert "best val/accuracy 0.646866" in run("status", sweeps.SWEEP_ID)
        assert run("pause", sweep_id) == f"{sweep_id}: is asked to save its trials and wait.\n"
        assert client.get(f"/sweeps/{sweep_id}")["paused"]
        run("resume", sweep_id, "--extend", "trials=9", code=2)
        assert run("resume", sweep_id) == f"{sweep_id}: goes on.\n"
        assert not client.get(f"/sweeps/{sweep_id}")["paused"]
        run("resume", sweep_id, code=2)
        root = str(client.workspace.paths.root)
        assert run_command(["pause", sweep_id, "--root", root]) == 0
        assert capsys.readouterr().out == f"{sweep_id}: is asked to save its trials and wait.\n"
        with client.workspace.ledger() as ledger:
            assert settings(ledger, sweep_id).paused
        assert run("stop", sweep_id) == f"{sweep_id}: is asked to save its trials and end.\n"
        run("release", sweep_id, code=2)
        run("retry-failed", sweep_id, code=2)
        log = client.workspace.paths.driver_log(sweeps.SWEEP_ID)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("the end\n")
        assert run("follow", sweeps.SWEEP_ID, code=4) == "the end\n"


def test_show_prints_the_metrics_of_scripts_and_networks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with server.served(tmp_path / "mlruns") as client:
        monkeypatch.setenv("SWEEP_TOKEN", client.tokens["vera"])
        with client.workspace.ledger() as ledger:
            script = sweeps.fill_script(ledger)

        def last_step(trial: str) -> str:
            assert run_command(["show", trial, "--server", client.address]) == 0
            return next(line for line in capsys.readouterr().out.splitlines() if line.startswith("  step "))

        metrics = "learning_rate 0.004, loss 0.25, seconds/evaluate 0.5, seconds/train 3"
        assert last_step(script) == f"  step 40: {metrics} (the last of 1 report)"
        network = last_step(f"{sweeps.SWEEP_ID}-0")
        assert "val/accuracy" in network
        assert not any(name in network for name in ("learning_rate", "tokens_per_second"))
