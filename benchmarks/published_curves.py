"""The curves of RotRNN's published trial as a picture and as a table.

    python -m benchmarks.published_curves listops.json [--figure docs/benchmarks/published-trial.png]

Reads what `benchmarks.published_trial --json` wrote; prints the table.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.published_trial import Reading
from benchmarks.timing import table

PUBLISHED = 0.611
"""Accuracy on test. Source: RotRNN, table 1."""

Curves = Mapping[int, Sequence[Reading]]
"""Seed -> its readings, in the order of their steps."""


def curves(file: Path) -> Curves:
    """Return the readings of every seed."""
    found: dict[int, list[Reading]] = {}
    for entry in json.loads(file.read_text())["curves"]:
        reading = Reading(**entry)
        found.setdefault(reading.seed, []).append(reading)
    return found


def drawn(by_seed: Curves) -> Figure:
    """Plot accuracy on validation, and the losses on training data, which are dashed, and on validation."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    accuracies, losses = figure.subplots(1, 2)
    for seed, readings in by_seed.items():
        steps = [reading.step for reading in readings]
        line = accuracies.plot(steps, [100 * r.accuracy for r in readings], label=f"seed {seed}", lw=1)[0]
        losses.plot(steps, [r.loss for r in readings], color=line.get_color(), lw=1)
        losses.plot(steps, [r.train_loss for r in readings], "--", color=line.get_color(), lw=1)
    accuracies.axhline(100 * PUBLISHED, color="black", lw=0.8, label="published, on test")
    accuracies.legend(fontsize="small", loc="lower right")
    _label(accuracies, "accuracy on validation, %")
    _label(losses, "loss; dashed: on training data")
    return figure


def rows(by_seed: Curves) -> list[list[str]]:
    """Return a row for each step that all seeds have reached."""
    return [
        [
            f"{together[0].step:,}",
            *(f"{100 * reading.accuracy:.1f} %" for reading in together),
            *(f"{reading.loss:.3f}" for reading in together),
            *(f"{reading.train_loss:.3f}" for reading in together),
        ]
        for together in zip(*by_seed.values(), strict=False)
    ]


def main() -> None:
    """Print the table, and save the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=Path, help="what `benchmarks.published_trial --json` wrote")
    parser.add_argument("--figure", type=Path, default=Path("docs/benchmarks/published-trial.png"))
    options = parser.parse_args()
    by_seed = curves(options.file)
    measures = ("validation accuracy", "validation loss", "training loss")
    header = ["step", *(f"{measure}, seed {seed}" for measure in measures for seed in by_seed)]
    print(table(header, rows(by_seed)))
    drawn(by_seed).savefig(options.figure, dpi=120)


def _label(panel: Axes, name: str) -> None:
    panel.set(xlabel="step", ylabel=name)
    panel.xaxis.set_major_formatter("{x:,.0f}")
    panel.locator_params(axis="x", nbins=5)


if __name__ == "__main__":
    main()
