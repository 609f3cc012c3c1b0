"""The verb `evaluate`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

from orchestrator.cli.found import trial_named
from orchestrator.cli.options import DEFAULT_DATA, DEFAULT_ROOT, Data, Json, Root, opened, paths
from orchestrator.errors import BadInput
from orchestrator.storage import store


def evaluate(
    trial: Annotated[str, typer.Argument(help="A trial's key, as the leaderboard shows it.")],
    data: Data = DEFAULT_DATA,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Evaluate a trial's best checkpoint again, on validation; the numbers must equal the recorded ones."""
    where, ledger = paths(root), opened(root)
    sweep_id = trial_named(ledger, trial).sweep_id
    best = next((row for row in ledger.checkpoints(trial) if row.kind == "best"), None)
    if best is None:
        raise BadInput(
            trial, "must be a trial with a checkpoint", "none", "The leaderboard of its sweep lists the keys."
        )
    folder = store.at_hand(where, sweep_id, trial, best.path)
    answer = _in_own_process(str(folder), str(data), "validation", str(where.compilations))
    recorded = {name: best.metrics[f"val/{name}"] for name in answer["metrics"]}
    same = recorded == answer["metrics"]
    console = Console(soft_wrap=True)
    if as_json:
        console.print_json(json.dumps({"trial": trial, **answer, "recorded": recorded, "equal": same}))
    else:
        for name, value in answer["metrics"].items():
            console.print(f"val/{name} {value!r} (recorded {recorded[name]!r})", highlight=False)
        console.print("equal to the last digit" if same else "NOT equal to what training recorded")
    raise typer.Exit(0 if same else 1)


def _in_own_process(folder: str, data: str, split: str, compilations: str) -> dict[str, Any]:
    """Evaluate under the very environment of a worker: XLA's threads change the last digits."""
    from orchestrator.training.process import worker_environment

    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.training.evaluation", folder, data, split, compilations],
        env={**os.environ, **worker_environment(0)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        line = done.stderr.strip().splitlines()[-1]
        raise BadInput(folder, "must be a checkpoint that evaluates", line, "See `check` for damaged files.")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
