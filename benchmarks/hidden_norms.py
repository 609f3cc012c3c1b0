"""Hidden-state norms of LRU and RotRNN during training on ListOps, by layer and by seed.

    python benchmarks/hidden_norms.py [--full] [--root mlruns] [--figure docs/hidden-norms.png]

Runs two profiles of benchmarks/hidden-norms.yaml as sweeps (completed sweeps are not run again): a network of
8 layers of each kind, and 5 seeds of a network of one layer. Prints how far the norms move and plots them.

Source: RotRNN, Figure 3.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from orchestrator.config import load
from orchestrator.ledger.ledger import Ledger
from orchestrator.report.history import History, read
from orchestrator.storage.paths import Paths

SPACE = Path(__file__).with_name("hidden-norms.yaml")
NORM = "hidden_norm/layer_"
TITLES = {"layers": "8 layers, one seed", "seeds": "one layer, 5 seeds"}
COLOURS = {"rotrnn": "tab:blue", "lru": "tab:orange"}

Norms = Mapping[str, np.ndarray]
"""Kind of layer -> norms (series, reports); a series is a layer of a network, or a seed."""


def norms(history: History) -> tuple[np.ndarray, Norms]:
    """Return the steps (reports,) and the norms of every kind of layer in a sweep.

    Raises:
        ValueError: if a trial of the sweep is not complete.
    """
    steps: np.ndarray = np.zeros(0)
    series: dict[str, list[list[float]]] = {}
    for trial in history.search():
        if trial.state != "COMPLETE":
            raise ValueError(f"{trial.key} is {trial.state.lower()}: resume the sweep first")
        reports = history.reports[trial.key]
        steps = np.array([report.step for report in reports])
        names = [f"{NORM}{k}" for k in range(sum(name.startswith(NORM) for name in reports[0].metrics))]
        curves = [[report.metrics[name] for report in reports] for name in names]
        series.setdefault(str(trial.params["layer"]), []).extend(curves)
    return steps, {kind: np.array(curves) for kind, curves in series.items()}


def drift(curves: np.ndarray) -> float:
    """Return the drift of a norm in training: deviation over time by mean, averaged over the series."""
    return float(np.mean(curves.std(axis=1) / curves.mean(axis=1)))


def spread(curves: np.ndarray) -> float:
    """Return the spread of the series: their deviation by their mean, averaged over time."""
    return float(np.mean(curves.std(axis=0) / curves.mean(axis=0)))


def table(norms_by_series: Mapping[str, Norms]) -> str:
    """Return drift and spread of every kind of layer as Markdown."""
    lines = [
        "| series | layer | mean norm | drift in training | spread over the series |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {TITLES[by]} | {kind} | {curves.mean():.2f} | {drift(curves):.1%} | {spread(curves):.1%} |"
        for by, kinds in norms_by_series.items()
        for kind, curves in kinds.items()
    ]
    return "\n".join(lines)


def drawn(measured: Mapping[str, tuple[np.ndarray, Norms]]) -> Figure:
    """Plot mean and deviation over the series, with one panel per kind of series."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    panels: Sequence[Axes] = figure.subplots(1, len(measured))
    for panel, (by, (steps, kinds)) in zip(panels, measured.items(), strict=True):
        for kind, curves in kinds.items():
            mean, deviation = curves.mean(axis=0), curves.std(axis=0)
            panel.plot(steps, mean, color=COLOURS[kind], label=kind)
            panel.fill_between(steps, mean - deviation, mean + deviation, color=COLOURS[kind], alpha=0.25)
        panel.set(title=TITLES[by], xlabel="step", ylabel="mean norm of the hidden state", ylim=(0, None))
        panel.legend()
    return figure


def run(profile: str, root: Path) -> History:
    """Run one profile as a sweep unless it is complete; return its history."""
    command = [
        sys.executable,
        "-m",
        "orchestrator.sweep",
        str(SPACE),
        "--profile",
        profile,
        "--root",
        str(root),
    ]
    subprocess.run(command, check=True)
    sweep = load(SPACE, profile=profile, gpus=0)
    ledger = Ledger.open(Paths(root).ledger_url)
    try:
        return read(ledger, sweep.id)
    finally:
        ledger.close()


def main() -> None:
    """Run the sweeps, print the table and save the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="full size; needs a GPU")
    parser.add_argument("--root", type=Path, default=Path("mlruns"))
    parser.add_argument("--figure", type=Path, default=Path("docs/hidden-norms.png"))
    options = parser.parse_args()
    profiles = ("full", "seeds") if options.full else ("laptop", "laptop-seeds")
    measured = {by: norms(run(profile, options.root)) for by, profile in zip(TITLES, profiles, strict=True)}
    print(table({by: kinds for by, (_, kinds) in measured.items()}))
    drawn(measured).savefig(options.figure, dpi=120)


if __name__ == "__main__":
    main()
