"""The plain stack: Ray Tune, OptunaSearch and the MLflow callback around a training function.

python -m benchmarks.plain.ray_tune TRIALS DATA.npz FOLDER
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from ray import tune
from ray.air.integrations.mlflow import MLflowLoggerCallback
from ray.tune.search.optuna import OptunaSearch


def trainable(config: dict[str, Any]) -> None:
    """Train one trial in its own process."""
    from benchmarks.plain.training import save, train

    def report(step: int, metrics: dict[str, float], state: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            save(Path(folder), state)
            tune.report({**metrics, "step": step}, checkpoint=tune.Checkpoint.from_directory(folder))

    train(config, seed=0, data=Path(config["data"]), report=report)


def main() -> None:
    """Run the sweep."""
    trials, data, folder = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    space = {
        "gamma_min": tune.uniform(0.1, 0.9),
        "learning_rate": tune.loguniform(1e-4, 1e-2),
        "recurrent_learning_rate": tune.loguniform(1e-5, 1e-2),
        "data": str(data),
    }
    mlflow = MLflowLoggerCallback(tracking_uri=f"sqlite:///{folder}/mlflow.db", experiment_name="plain")
    tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1}),
        param_space=space,
        tune_config=tune.TuneConfig(
            search_alg=OptunaSearch(metric="val_accuracy", mode="max", seed=0),
            num_samples=trials,
            max_concurrent_trials=2,
        ),
        run_config=tune.RunConfig(storage_path=str(folder), callbacks=[mlflow], verbose=0),
    ).fit()


if __name__ == "__main__":
    main()
