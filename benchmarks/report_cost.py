"""Seconds that a report costs: a function and a command of a sweep, beside a function of bare Ray Tune.

    python benchmarks/report_cost.py [--reports 300] [--only NAME ...]

Every trial does nothing but report, so the time between two reports is what a report costs. It is measured
inside the trial. With a checkpoint, every report hands over a folder with one file of 64 KiB. The first 20
reports of a trial are left out. Bare Ray Tune runs a function of its own with Ray's default loggers; its
checkpoints go to its own storage folder.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
LEFT_OUT = 20
IMPORTS = "import json, tempfile, time\nfrom pathlib import Path"
LOOP = """
    times = []
    for step in range(1, REPORTS + 1):
        began = time.perf_counter()
        if CHECKPOINT:
            (folder / "state").write_bytes(bytes(65536))
        REPORT
        times.append(time.perf_counter() - began)
    Path(TIMES).write_text(json.dumps(times))
"""
FUNCTION = f"""
{IMPORTS}
def train(trial):
    folder = trial.folder
{LOOP}
"""
COMMAND = f"""
{IMPORTS}
import sweep_client
trial = sweep_client.trial()
folder = trial.folder
if True:
{LOOP}
"""
RAY_TUNE = f"""
{IMPORTS}
import ray
from ray import tune
def train(config):
    folder = Path(tempfile.mkdtemp())
{LOOP}
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
tune.Tuner(train, run_config=tune.RunConfig(storage_path=STORAGE, verbose=0)).fit()
"""
REPORTS = {
    "sweep": "trial.report(step, {'val/loss': 1 / step}, checkpoint=folder if CHECKPOINT else None)",
    "ray": "tune.report({'step': step, 'val/loss': 1 / step},"
    " checkpoint=tune.Checkpoint.from_directory(folder) if CHECKPOINT else None)",
}
SPACE = """
trainable: {trainable}
search: {{x: {{uniform: [0, 1]}}}}
training: {{steps: {reports}, interval: 1}}
objective: {{minimize: val/loss}}
sampler: {{random: {{seed: 0}}}}
scheduler: none
budget: {{trials: 1}}
"""


class Case(NamedTuple):
    """One measurement.

    Attributes:
        reports: of the trial.
        with_checkpoint: whether every report hands over a folder.
        folder: for its files.
    """

    reports: int
    with_checkpoint: bool
    folder: Path

    @property
    def times(self) -> Path:
        """Return the file to which the trial writes its times."""
        return self.folder / "times.json"

    def script(self, text: str, report: str) -> Path:
        """Write a script with this case's numbers; return its path."""
        values = {
            "REPORTS": str(self.reports),
            "REPORT": report,
            "CHECKPOINT": str(self.with_checkpoint),
            "TIMES": repr(str(self.times)),
            "STORAGE": repr(str(self.folder / "storage")),
        }
        text = text.replace("        REPORT\n", f"        {values.pop('REPORT')}\n")
        for name, value in values.items():
            text = text.replace(name, value)
        file = self.folder / "train.py"
        file.write_text(text)
        return file


def swept(case: Case, text: str, trainable: str) -> None:
    """Run a sweep of one trial."""
    case.script(text, REPORTS["sweep"])
    space = case.folder / "space.yaml"
    space.write_text(SPACE.format(trainable=trainable, reports=case.reports))
    places = {"SWEEP_ROOT": case.folder / "mlruns", "SWEEP_RUNTIME": case.folder / "run"}
    environment = {name: str(place) for name, place in places.items()}
    environment = {**os.environ, **environment, "SWEEP_RAY_LINGER": "0"}  # no Ray outlives its measurement
    _run([sys.executable, "-m", "orchestrator.sweep", str(space)], environment)


def function(case: Case) -> None:
    """Run a function of a sweep."""
    swept(case, FUNCTION, "{function: train.py:train}")


def command(case: Case) -> None:
    """Run a command of a sweep, which uses `sweep_client`."""
    swept(case, COMMAND, f"{{command: [{sys.executable}, train.py]}}")


def ray_tune(case: Case) -> None:
    """Run a function of bare Ray Tune."""
    _run([sys.executable, str(case.script(RAY_TUNE, REPORTS["ray"]))], dict(os.environ))


def _run(words: list[str], environment: dict[str, str]) -> None:
    environment |= {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}\n{done.stderr}")


CASES: dict[str, Callable[[Case], None]] = {"ray_tune": ray_tune, "function": function, "command": command}


def measured(run: Callable[[Case], None], reports: int, *, with_checkpoint: bool) -> list[float]:
    """Return the milliseconds of each report of a trial, the first ones left out."""
    with tempfile.TemporaryDirectory() as folder:
        case = Case(reports, with_checkpoint, Path(folder))
        run(case)
        times: list[float] = json.loads(case.times.read_text())
    return [1000 * one for one in times[LEFT_OUT:]]


def rows(names: list[str], reports: int) -> Iterator[str]:
    """Yield the rows of the table as they are measured."""
    yield "| trial | checkpoint | median ms | 90 % ms | mean of the last quarter, ms | load |"
    yield "|---|---|---|---|---|---|"
    for name in names:
        for with_checkpoint in (False, True):
            times = measured(CASES[name], reports, with_checkpoint=with_checkpoint)
            middle, slow = statistics.median(times), statistics.quantiles(times, n=10)[-1]
            late = statistics.fmean(times[-len(times) // 4 :])
            kept = "64 KiB" if with_checkpoint else "none"
            yield f"| {name} | {kept} | {middle:.1f} | {slow:.1f} | {late:.1f} | {os.getloadavg()[0]:.1f} |"


def main() -> None:
    """Measure and print a row for each kind of trial, without and with checkpoints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--reports", type=int, default=300)
    parser.add_argument("--only", nargs="*", choices=[*CASES], default=[*CASES])
    options = parser.parse_args()
    for row in rows(options.only, options.reports):
        print(row, flush=True)


if __name__ == "__main__":
    main()
