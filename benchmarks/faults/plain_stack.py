"""The plain stack under the same faults, as its users run it: the state of eight trials afterwards.

    python -m benchmarks.faults.plain_stack [kills] [mlflow]

Ray Tune with OptunaSearch on a database, MLflowLoggerCallback and `Tuner.restore`. A trial reports eight
times, 0.4 s apart, with a checkpoint per report; two trials run at once. `plain` holds the observations.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

TRIALS, REPORTS, KILLS = 8, 8, 4
LINES = "ran.log"
PATIENCE = 900.0


def drive(folder: Path, uri: str) -> None:
    """Run or restore the experiment in this process."""
    import optuna
    from ray import tune
    from ray.air.integrations.mlflow import MLflowLoggerCallback
    from ray.tune.search.optuna import OptunaSearch

    def train(config: dict[str, Any]) -> None:
        saved, begin = tune.get_checkpoint(), 0
        if saved:
            with saved.as_directory() as at:
                begin = int((Path(at) / "step").read_text())
        name = tune.get_context().get_trial_id()
        for step in range(begin + 1, REPORTS + 1):
            time.sleep(0.4)
            with (folder / LINES).open("a") as lines:
                lines.write(f"{name} {step}\n")
            with tempfile.TemporaryDirectory() as at:
                (Path(at) / "step").write_text(str(step))
                metrics = {"loss": config["rate"] / step, "step": step}
                tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(at))

    where = str(folder / "tune" / "plain")
    if tune.Tuner.can_restore(where):
        tune.Tuner.restore(where, trainable=train, resume_errored=True).fit()
        return
    storage = optuna.storages.RDBStorage(f"sqlite:///{folder / 'optuna.db'}")
    search = OptunaSearch(metric="loss", mode="min", study_name="plain", storage=storage)
    tune.Tuner(
        train,
        param_space={"rate": tune.loguniform(1e-4, 1e-2)},
        tune_config=tune.TuneConfig(search_alg=search, num_samples=TRIALS, max_concurrent_trials=2),
        run_config=tune.RunConfig(
            name="plain",
            storage_path=str(folder / "tune"),
            callbacks=[MLflowLoggerCallback(tracking_uri=uri, experiment_name="plain")],
            checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
            failure_config=tune.FailureConfig(max_failures=3),
            verbose=0,
        ),
    ).fit()


def killed(folder: Path) -> str:
    """Kill the driver after seeded random numbers of steps and restart it, then let it run to completion."""
    uri, chance, codes = f"sqlite:///{folder / 'mlflow.db'}", random.Random(0), []
    for _ in range(KILLS):
        driver = _started(folder, uri)
        wanted = len(_lines(folder)) + chance.randrange(6, 14)
        if not _until(lambda wanted=wanted: len(_lines(folder)) >= wanted, driver):
            codes.append(driver.returncode)
            continue
        driver.kill()
        driver.wait()
        _clean_up(driver, folder)
    for _ in range(2):
        driver = _started(folder, uri)
        codes.append(driver.wait(PATIENCE))
        _clean_up(driver, folder)
    return f"{KILLS} kills, codes {codes}; {_counts(folder)}"


def without_mlflow(folder: Path) -> str:
    """Kill the MLflow server during the experiment, without restarting it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    store = f"sqlite:///{folder / 'mlflow.db'}"
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store, "--port", str(port)]
    server = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _until(lambda: _answers(port), server)
    driver = _started(folder, f"http://127.0.0.1:{port}", MLFLOW_HTTP_REQUEST_MAX_RETRIES="2")
    _until(lambda: len(_lines(folder)) >= 12, driver)
    os.killpg(server.pid, signal.SIGKILL)
    code = driver.wait(PATIENCE)
    _clean_up(driver, folder)
    return f"exit code {code} after {len(_lines(folder))} of {TRIALS * REPORTS} steps; {_counts(folder)}"


def _counts(folder: Path) -> str:
    """Return the repeated steps, the trials that ended twice, and the states in both databases."""
    steps = Counter(_lines(folder))
    ends = [line for line, count in steps.items() if line.endswith(f" {REPORTS}") and count > 1]
    counts = [
        f"{sum(steps.values()) - len(steps)} steps run again",
        f"{len(ends)} trials run to their end twice",
    ]
    queries = {
        "optuna": "SELECT state, count(*) FROM trials GROUP BY state",
        "mlflow": "SELECT status, count(*) FROM runs GROUP BY status",
    }
    for name, query in queries.items():
        with sqlite3.connect(folder / f"{name}.db") as store:
            counts.append(f"{name} {json.dumps(dict(store.execute(query).fetchall()))}")
    return ", ".join(counts)


def _started(folder: Path, uri: str, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.faults.plain_stack", "--drive", str(folder), uri]
    own = {"RAY_AUTH_MODE": "disabled", "RAY_ADDRESS": "local", "PLAIN_STACK": str(folder), **environment}
    with (folder / "driver.log").open("ab") as log:
        return subprocess.Popen(
            command, env={**os.environ, **own}, stdout=log, stderr=log, start_new_session=True
        )


def _clean_up(driver: subprocess.Popen[bytes], folder: Path) -> None:
    """Kill the processes that a dead driver left behind, as a user would before restarting."""
    time.sleep(4)
    for process in psutil.process_iter():
        try:
            if process.environ().get("PLAIN_STACK") == str(folder):
                process.kill()
        except psutil.Error:
            continue
    driver.wait()


def _lines(folder: Path) -> list[str]:
    return (folder / LINES).read_text().splitlines() if (folder / LINES).exists() else []


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _until(condition: Any, process: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


FAULTS = {"kills": killed, "mlflow": without_mlflow}


def main() -> None:
    """Inject the faults named on the command line, or all of them."""
    if sys.argv[1:2] == ["--drive"]:
        drive(Path(sys.argv[2]), sys.argv[3])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"faults (default: all): {', '.join(FAULTS)}"
    )
    names = parser.parse_args().names or list(FAULTS)
    if unknown := set(names) - set(FAULTS):
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    for name in names:
        with tempfile.TemporaryDirectory(prefix="plain-") as folder:
            print(f"{name}: {FAULTS[name](Path(folder))}", flush=True)


if __name__ == "__main__":
    main()
