"""Seconds that a report costs: a function and a command of a sweep, beside a function of bare Ray Tune.

    python -m benchmarks.report_cost [--reports 300] [--rounds 5] [--only NAME ...]

Every trial does nothing but report, so the time between two reports is what a report costs. It is measured
inside the trial. With a checkpoint, every report hands over a folder with one file of 64 KiB. The first 20
reports of a trial are left out. Bare Ray Tune runs a function of its own with Ray's default loggers; its
checkpoints go to its own storage folder, and may be lost with the machine's power. `ray_tune_flushed` flushes
each of them after its report, which gives what a report of a sweep promises. The trials run in rounds, one
after another, and each is compared with those of bare Ray Tune in its own round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
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
import os, ray
from ray import tune
def flush():
    kept = Path(tune.get_checkpoint().path)
    for path in (kept / "state", kept, kept.parent):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
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
REPORTS["ray, flushed"] = f"{REPORTS['ray']}; flush()"
BARE = "ray_tune", "ray_tune_flushed"
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
        reports: Number of reports of the trial.
        with_checkpoint: Whether every report hands over a folder.
        folder: Folder for its files.
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


def ray_tune_flushed(case: Case) -> None:
    """Run a function of bare Ray Tune that flushes its checkpoints."""
    _run([sys.executable, str(case.script(RAY_TUNE, REPORTS["ray, flushed"]))], dict(os.environ))


def _run(words: list[str], environment: dict[str, str]) -> None:
    environment |= {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}\n{done.stderr}")


CASES: dict[str, Callable[[Case], None]] = {
    "ray_tune": ray_tune,
    "ray_tune_flushed": ray_tune_flushed,
    "function": function,
    "command": command,
}


def measured(run: Callable[[Case], None], reports: int, *, with_checkpoint: bool) -> list[float]:
    """Return the milliseconds of each report of a trial, the first ones left out.

    What the trial before has left to the disk, such as the deletion of its checkpoints, is done first.
    """
    os.sync()
    with tempfile.TemporaryDirectory() as folder:
        case = Case(reports, with_checkpoint, Path(folder))
        run(case)
        times: list[float] = json.loads(case.times.read_text())
    return [1000 * one for one in times[LEFT_OUT:]]


def rounds(names: list[str], reports: int, count: int) -> dict[tuple[str, bool], list[list[float]]]:
    """Return the milliseconds of each report, by trial and whether it has checkpoints, a list for each round.

    In a round every trial runs once, beside the others: what else the machine does changes all of them.
    """
    times: dict[tuple[str, bool], list[list[float]]] = {}
    for _ in range(count):
        for with_checkpoint in (False, True):
            for name in names:
                if name == "ray_tune_flushed" and not with_checkpoint:
                    continue
                found = measured(CASES[name], reports, with_checkpoint=with_checkpoint)
                times.setdefault((name, with_checkpoint), []).append(found)
    return times


def rows(times: Mapping[tuple[str, bool], list[list[float]]]) -> Iterator[str]:
    """Yield the rows of the table."""
    yield "| trial | checkpoint | median of each round, ms | 90 %, ms | above bare Ray Tune | above flushed |"
    yield "|---|---|---|---|---|---|"
    for (name, with_checkpoint), found in times.items():
        middles = [statistics.median(one) for one in found]
        slow = statistics.quantiles([time for one in found for time in one], n=10)[-1]
        above = [
            _above(middles, times.get((bare, with_checkpoint), ())) if name not in BARE else ""
            for bare in BARE
        ]
        kept = "64 KiB" if with_checkpoint else "none"
        yield f"| {name} | {kept} | {_listed(middles)} | {slow:.1f} | {' | '.join(above)} |"


def _above(middles: list[float], bare: Sequence[list[float]]) -> str:
    """Return by how much each round is above that of bare Ray Tune, and the median of that."""
    above = [own - statistics.median(other) for own, other in zip(middles, bare, strict=False)]
    return f"{_listed(above)}; median {statistics.median(above):.1f}" if above else ""


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def main() -> None:
    """Measure in rounds and print a row for each kind of trial, without and with checkpoints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--reports", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=[*CASES], default=[*CASES])
    options = parser.parse_args()
    before = os.getloadavg()[0]
    times = rounds(options.only, options.reports, options.rounds)
    for row in rows(times):
        print(row)
    print(f"\nload: {before:.1f} before, {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
