"""Secrets in the environment, files and addresses of a sweep appear in none of the files it leaves."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests import postgres
from tests.end_to_end.commands import Commands
from tests.packages import installed
from tests.shared_ray import own_ray, runtime_folder_of

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

SPACE = """
# kept at http://me:canary-file@host/spaces
task: copy
data: {delay: 6, examples: 400, held_out: 40}
model: {layer: loud, depth: 1, d_model: 8, d_state: 16}
training: {steps: 20, interval: 10, batch_size: 8, learning_rate: 1e-3, recurrent_learning_rate: 1e-3}
evaluate: {examples: 40}
search: {says: {choice: ["nothing", all]}}
objective: {minimize: val/loss}
sampler: {grid: {}}
scheduler: {none: {}}
budget: {trials: 2}
resources: {cpu: 1}
"""
LAYER = """
import os
from trainables.layers.lds import LDS
from trainables.settings import LayerSettings, Option

class Loud(LDS):
    settings = LayerSettings("Fails.", {"says": Option("nothing", "The text.", choices=("nothing", "all"))})

    def __init__(self, *sizes, says="nothing", **options):
        super().__init__(*sizes, **options)
        if says == "all":
            raise RuntimeError(f"no answer of db://me:canary-error@host/x with {os.environ['LOUD_API_KEY']}")
"""


def rows(url: str) -> str:
    """Return every row of every table."""
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return "".join(str(connection.execute(f'SELECT * FROM "{name}"').fetchall()) for (name,) in tables)


def test_planted_secrets_appear_in_no_output(
    commands: Commands, postgres_server: postgres.Server, temporary: Path, tmp_path: Path
) -> None:
    """Neither ledger, MLflow, logs nor the states of Ray contain one, nor does the output of the command."""
    file, url = tmp_path / "space.yaml", postgres_server.empty_database()
    file.write_text(SPACE)
    points = {"trainables.layers": {"loud": "loud:Loud"}}
    site = installed(tmp_path / "site", points, {"loud.py": LAYER}, "loud")
    environment = {
        "SWEEP_LEDGER": url,
        "LOUD_API_KEY": "canary-environment",
        "PYTHONPATH": f"{site}:{Path.cwd()}",
    }
    webhook = "http://me:canary-user@127.0.0.1:9/canary-path?token=canary-query"
    command = (str(file), "--notify", webhook, "--tracking-patience")
    unreachable = "http://me:canary-uri@127.0.0.1:9"
    with own_ray(temporary) as ray:
        code, first = commands.run(*command, "1", MLFLOW_TRACKING_URI=unreachable, **environment, **ray)
        assert code == 3, first
        code, second = commands.run(*command, "90", **environment, **ray)
        assert code == 3, second
        written = {
            path: path.read_bytes()
            for folder in (commands.root, temporary)
            for path in folder.rglob("*")
            if path.is_file()
        }
        token = (runtime_folder_of(temporary) / "ray-token").read_bytes()
    assert any("session_" in str(path) for path in written), "the files of Ray are among them"
    written |= {Path("output"): (first + second).encode(), Path("ledger"): rows(url).encode()}
    error = b"no answer of db://host/x with ***"
    recorded = {path.name for path, content in written.items() if error in content}
    assert {"ledger", "mlflow.db"} < recorded, "the error itself must be recorded"
    secrets = (b"canary", postgres.PASSWORD.encode(), token)
    hits = {(path.name, secret) for path, text in written.items() for secret in secrets if secret in text}
    assert hits == {("ray-token", secrets[2])}
