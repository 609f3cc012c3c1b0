"""Train an exported trial again and compare its curve: `python -m trainables.replay trial.json --data DIR`.

The environment variables that XLA reads must be those of the trial: an export's `run.sh` sets them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainables.engine import Engine
from trainables.errors import BadData, Refusal
from trainables.tasks import TASKS
from trainables.trial import TrialSettings

Curve = dict[int, dict[str, float]]
"""Metrics by step."""


def replayed(
    settings: TrialSettings, data_digest: str, folder: Path
) -> Iterator[tuple[int, dict[str, float]]]:
    """Train a trial from its seed; yield each step that it reports at, and the metrics of that step.

    Raises:
        BadData: the data in `folder` is not the data that the trial was trained on.
    """
    data = TASKS[settings.task].load(settings.task_options, folder)
    if data.digest != data_digest:
        must = f"must be the data of the trial, SHA-256 {data_digest[:12]}..."
        raise BadData(
            str(folder), must, f"{data.source}, {data.digest[:12]}...", "Fetch the data that the trial read."
        )
    engine, training = Engine(settings, data), settings.training
    engine.admit(0, settings)
    step = 0
    while step < training.steps:
        report = engine.advance({0: min(training.interval, training.steps - step)})[0]
        step = report.step
        if not report.finite:
            return
        yield step, report.curve(engine.evaluate(0, "validation", settings.evaluate_examples))


def differences(recorded: Mapping[str, float], again: Mapping[str, float]) -> list[str]:
    """Return the names of the metrics of one step that are not equal to the last digit."""
    return [name for name, value in recorded.items() if name in again and again[name] != value]


def main(arguments: list[str]) -> int:
    """Replay the trial of a file; return 0 if every point of its recorded curve is reproduced, else 1."""
    parser = argparse.ArgumentParser(prog="replay", description="Train an exported trial again.")
    parser.add_argument("trial", type=Path)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the data sets")
    options = parser.parse_args(arguments)
    trial: dict[str, Any] = json.loads(options.trial.read_text())
    settings = TrialSettings.from_document(trial["settings"])
    recorded: Curve = {int(step): metrics for step, metrics in trial["curve"].items()}
    try:
        different = _compared(recorded, replayed(settings, trial["data"]["digest"], options.data))
    except Refusal as refusal:
        sys.exit(str(refusal))
    missed = len(recorded) - len(different)
    equal = missed == 0 and not any(different.values())
    _print("equal to the last digit" if equal else f"NOT equal; {missed} steps were not reached")
    return 0 if equal else 1


def _compared(recorded: Curve, again: Iterator[tuple[int, dict[str, float]]]) -> dict[int, list[str]]:
    """Print each recorded step when it is reproduced; return the metrics that differ, by step."""
    different: dict[int, list[str]] = {}
    last = max(recorded, default=0)
    for step, metrics in again:
        if step in recorded:
            different[step] = differences(recorded[step], metrics)
            scores = (f"{name} {value:.6g}" for name, value in metrics.items() if name.startswith("val/"))
            note = f"; differs: {', '.join(different[step])}" if different[step] else ""
            _print(f"step {step}: {', '.join(scores)}{note}")
        if step >= last:
            break
    return different


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the answer of this process


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
