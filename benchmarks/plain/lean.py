"""The simplest loop: one process, `study.optimize`, one jitted step, MLflow.

python -m benchmarks.plain.lean TRIALS DATA.npz FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mlflow
import optuna

from benchmarks.plain.training import save, train


def main() -> None:
    """Run the sweep."""
    trials, data, folder = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.set_experiment("lean")

    def objective(trial: optuna.Trial) -> float:
        params = {
            "gamma_min": trial.suggest_float("gamma_min", 0.1, 0.9),
            "learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True),
            "recurrent_learning_rate": trial.suggest_float("recurrent_learning_rate", 1e-5, 1e-2, log=True),
        }
        saved = folder / f"trial-{trial.number}"
        saved.mkdir()
        last = {}

        def report(step: int, metrics: dict[str, float], state: Any) -> None:
            mlflow.log_metrics(metrics, step=step)
            save(saved, state)
            last.update(metrics)

        with mlflow.start_run():
            mlflow.log_params(params)
            train(params, seed=0, data=data, report=report)
        return last["val_accuracy"]

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=trials)


if __name__ == "__main__":
    main()
