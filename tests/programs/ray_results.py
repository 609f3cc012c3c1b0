"""Run four trials of Ray Tune, whose results are left in a folder."""

import sys

import ray
from ray import tune


def train(config: dict[str, float]) -> None:
    for step in range(1, 3):
        tune.report({"loss": config["lr"] / step})


ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
tune.Tuner(
    train,
    param_space={"lr": tune.loguniform(1e-4, 1e-1), "momentum": tune.grid_search([0.8, 0.9])},
    tune_config=tune.TuneConfig(num_samples=2),
    run_config=tune.RunConfig(name="results", storage_path=sys.argv[1], verbose=0),
).fit()
ray.shutdown()
