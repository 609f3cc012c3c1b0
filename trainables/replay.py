"""Train an exported trial again and compare its curve: `python -m trainables.replay trial.json --data DIR`.

The environment variables that XLA reads must be those of the trial: an export's `run.sh` sets them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainables.engine import Engine, TrainReport, data_of
from trainables.errors import BadData, Refusal
from trainables.per_step import PerStep
from trainables.stretches import Stretch, Stretches, continued
from trainables.trial import ProgramSettings, ScriptSettings, TrialSettings, settings_from

Curve = dict[int, dict[str, float]]
"""Metrics by step."""


def replayed(
    settings: TrialSettings | ProgramSettings, data_digest: str, folder: Path, stretches: Stretches
) -> Iterator[tuple[int, dict[str, float]]]:
    """Train a trial from its seed; yield each step with a report, and its metrics.

    If a loss or a gradient is not finite, the last step is the one before it.

    Args:
        settings: Settings of the trial.
        data_digest: Digest of the data on which the trial was trained.
        folder: Folder of the data sets.
        stretches: Programs that trained the trial; if empty, the program of a single slot.

    Raises:
        BadData: The data in `folder` is not the data that the trial was trained on.
        Refusal: The program of the trial cannot be imported.
    """
    data = data_of(settings, folder)
    if data.digest != data_digest:
        must = f"must be the data of the trial, SHA-256 {data_digest[:12]}..."
        raise BadData(str(folder), must, f"{data.digest[:12]}...", "Fetch the data that the trial read.")
    again = _Trial(settings, data)
    for attempt in stretches if any(stretches) else [[Stretch(settings.training.steps, 1, 1)]]:
        for stretch in attempt:
            yield from again.train(stretch)
            if again.frozen:
                return
        again.drop_report()


class _Trial:
    """A trial in the first slot of an engine, trained again stretch by stretch.

    Args:
        settings: Settings of the trial.
        data: Data on which it was trained.

    Attributes:
        frozen: True once a loss or a gradient was not finite; the trial then takes no further steps.
    """

    def __init__(self, settings: TrialSettings | ProgramSettings, data: Any) -> None:
        self._settings, self._data = settings, data
        self.frozen = False
        self._step = self._left = 0
        self._engine: Engine | None = None
        self._unreported: PerStep | None = None

    def train(self, stretch: Stretch) -> Iterator[tuple[int, dict[str, float]]]:
        """Train a stretch; yield the reports that it completes, up to one that is not finite."""
        engine, until = self._engine_of(stretch.slots), self._step + stretch.steps
        while self._step < until:
            if not self._left:
                training = self._settings.training
                self._left = min(
                    training.interval - self._step % training.interval, training.steps - self._step
                )
                engine.ask(0, self._left)
            ended = engine.round(size=stretch.size, most=until - self._step)
            for error in ended.failures.values():
                raise error
            self._step += ended.steps[0]
            self._left -= ended.steps[0]
            if report := ended.reports.get(0):
                if not report.finite:
                    self.frozen = True
                    return
                scores = engine.evaluate(0, "validation", self._settings.evaluate_examples)
                yield (
                    self._step,
                    self._whole(report).curve(scores, engine.hidden_norms(0), engine.solutions(0)),
                )

    def _whole(self, report: TrainReport) -> TrainReport:
        """Return a report that includes steps of another engine since the last report."""
        earlier, self._unreported = self._unreported, None
        return report if earlier is None else report.after(earlier)

    def drop_report(self) -> None:
        """Begin a new report with the next step, as attempts of earlier versions did."""
        if self._left and self._engine is not None:
            self._engine.cut(0)
            self._left = 0
        self._unreported = None

    def _engine_of(self, slots: int) -> Engine:
        """Return an engine with a number of slots and the trial in the first."""
        before = self._engine
        if before is not None and before.slots == slots:
            return before
        if self._left and before is not None:
            self._unreported = self._whole(before.cut(0)).per_step
            self._left = 0
        self._engine = Engine(self._settings, self._data, slots=slots, stacked=slots > 1)
        if before is None:
            self._engine.admit(0, self._settings)
        else:
            self._engine.restore(0, self._settings, before.snapshot(0))
        return self._engine


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
    settings = _settings(trial["settings"], options.trial.parent)
    recorded: Curve = {int(step): metrics for step, metrics in trial["curve"].items()}
    try:
        stretches = continued(trial["stretches"])
        again = replayed(settings, trial["data"]["digest"], options.data, stretches)
        different = _compared(recorded, again)
    except Refusal as refusal:
        sys.exit(str(refusal))
    _print(trial["guarantee"])
    missed = len(recorded) - len(different)
    equal = missed == 0 and not any(different.values())
    _print("equal to the last digit" if equal else f"NOT equal; {missed} steps were not reached")
    return 0 if equal else 1


def _settings(document: Mapping[str, Any], beside: Path) -> TrialSettings | ProgramSettings:
    """Return the settings of an exported trial; the folder of a program is relative to its file."""
    settings = settings_from(document)
    assert not isinstance(settings, ScriptSettings), "a function or a command is exported as files"
    if isinstance(settings, ProgramSettings):
        return replace(settings, folder=str(beside / settings.folder))
    return settings


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
