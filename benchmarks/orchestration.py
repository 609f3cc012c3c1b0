"""Overhead of the service per trial: N trials that train nothing and report five times.

    python -m benchmarks.orchestration [--trials 1000]

It includes the ledger, TPE, the scheduler, reused workers and MLflow, until the outbox is empty. The memory
of the driver is printed for each quarter of the trials. In a soak (`--trials 2000`) it should grow by 5 % at
most from the first quarter to the last. It should keep none of Ray's objects for a finished trial, on every
machine. With `--trials 10000`, a trial of the last quarter should take at most 1.3 times as long as one of
the first.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.service import begin
from trainables.trial import TrialSettings

REPORTS = 5
SPACE = """
task: retrieval
model: {{layer: rotrnn, depth: 2, d_model: 32, d_state: 64, heads: 8}}
training: {{steps: 5, interval: 1, batch_size: 16}}
search:
  gamma_init.min: {{uniform: [0.1, 0.9]}}
  theta_init.max: {{choice: [pi/100, pi/10, pi, 2*pi]}}
  learning_rate: {{log_uniform: [1e-4, 1e-2]}}
  recurrent_learning_rate: {{log_uniform: [1e-5, 1e-2]}}
objective: {{maximize: val/accuracy}}
sampler: {{tpe: {{seed: 0}}}}
scheduler: {{none: {{}}}}
budget: {{trials: {trials}}}
resources: {{cpu: 1}}
"""


def metrics_of(settings_rate: float, step: int) -> dict[str, float]:
    """Return the metrics that a trial of the small RotRNN reports: a smooth function of its learning rate."""
    score = 0.5 + 0.3 / (1 + abs(settings_rate - 3e-3) * 300) * step / REPORTS
    names = ("val/loss", "train/loss", "train/accuracy", "learning_rate", "tokens_per_second")
    norms = {f"hidden_norm/head/layer_{k}": 2.8 for k in range(2)}
    return {"val/accuracy": score, **dict.fromkeys(names, 0.5), **norms}


class Growth:
    """Memory and pace of this process, from the first tenth of its trials on, once all modules are imported.

    Args:
        trials: Number of trials.
    """

    def __init__(self, trials: int) -> None:
        self._process = psutil.Process()
        self._due = [trials // 10, *(trials * quarter // 4 for quarter in (1, 2, 3, 4))]
        self._seen: list[tuple[int, int]] = []
        self._times: list[float] = []
        self._objects: list[int] = []

    def look(self, finished: Callable[[], int]) -> None:
        """Record the memory and the time if a tenth or a further quarter of the trials are finished."""
        if len(self._seen) < len(self._due) and (now := finished()) >= self._due[len(self._seen)]:
            self._seen.append((now, self._process.memory_info().rss))
            self._times.append(time.perf_counter())
            gc.collect()
            modules = (str(type(each).__module__) for each in gc.get_objects())
            self._objects.append(sum(module.startswith("ray.") for module in modules))

    def kib_a_trial(self) -> float:
        """Return the growth in KiB per trial, from the first tenth to the last trial."""
        (first, before), *_, (last, after) = self._seen
        return (after - before) / 1024 / (last - first)

    def objects_a_trial(self) -> float:
        """Return the growth in Ray's objects per trial, from the first tenth to the third quarter of them."""
        (first, _), *_, (last, _), _ = self._seen
        return (self._objects[-2] - self._objects[0]) / (last - first)

    def pace(self) -> dict[str, float]:
        """Return the milliseconds a trial in the rest of the first quarter, and in the last quarter."""
        return {
            f"ms a trial, {self._seen[k][0]} to {self._seen[k + 1][0]}": 1000
            * (self._times[k + 1] - self._times[k])
            / (self._seen[k + 1][0] - self._seen[k][0])
            for k in (0, len(self._seen) - 2)
        }

    def quarters(self) -> dict[str, float]:
        """Return the MiB after each quarter of the trials."""
        return {f"driver MiB, {trials} trials": memory / 2**20 for trials, memory in self._seen[1:]}


def measured(trials: int, folder: Path) -> dict[str, float]:
    """Run the trials and return the figures by name."""
    from orchestrator.schedule import environment

    environment.prepare(folder / "ray-token")
    from orchestrator.assignment import Outcome, SavedCheckpoint
    from orchestrator.machines import hardware
    from orchestrator.schedule import cluster, tuner
    from orchestrator.schedule.worker import Worker

    class Idle(Worker):
        """A worker that reports like a trial and trains nothing."""

        def step(self) -> dict[str, Any]:
            assignment = self._assignment
            assert isinstance(assignment.settings, TrialSettings)
            self._at = getattr(self, "_at", 0) % REPORTS + 1
            rate = assignment.settings.training.learning_rate
            saved = SavedCheckpoint(f"{assignment.checkpoints}/step-{self._at}", self._at, "0" * 64, 1)
            done = self._at == REPORTS
            return Outcome(
                assignment.attempt_id, self._at, done, metrics_of(rate, self._at), saved
            ).to_result()

    sweep, ledger, session, share, shipper = begin(SPACE.format(trials=trials), folder)
    grown = Growth(trials)

    def tick(_: Any) -> None:
        session.check_limits()  # as a driver does: it also lets go of superseded checkpoints
        shipper.nudge()
        grown.look(lambda: ledger.states(sweep.id).get("COMPLETE", 0))

    with cluster.connected(hardware.detect()):
        began = time.perf_counter()
        tuner.run(session, share, [], deadline=max(600, trials / 5), tick=tick, trainable=Idle)
        searched = time.perf_counter() - began
        grown.look(lambda: trials)
        left = shipper.drain(600)
        seconds = time.perf_counter() - began
    shipper.close()
    assert left == 0, f"{left} records were not delivered"
    assert ledger.states(sweep.id) == {"COMPLETE": trials}
    return {
        "ms a trial": 1000 * seconds / trials,
        "until the last trial": 1000 * searched / trials,
        **grown.pace(),
        "driver KiB a trial": grown.kib_a_trial(),
        "objects of Ray a trial": grown.objects_a_trial(),
        **grown.quarters(),
    }


def main() -> None:
    """Run the trials and print a table."""
    parser = argparse.ArgumentParser(description="Overhead of the service per trial.")
    parser.add_argument("--trials", type=int, default=1000)
    trials = parser.parse_args().trials
    with tempfile.TemporaryDirectory() as folder:
        figures = measured(trials, Path(folder))
    print(f"{trials} trials that train nothing, {REPORTS} reports each\n")
    print(f"| {' | '.join(figures)} |\n|{'---|' * len(figures)}")
    print(f"| {' | '.join(f'{value:.1f}' for value in figures.values())} |")


if __name__ == "__main__":
    main()
