"""Five sweeps of three owners on one real Ray of fake nodes: who held how much, over time.

    python -m benchmarks.sharing.fairness [--minutes 5] [--picture FILE]

Ada has one sweep, Bob and Cyd have two each, on six nodes of two processors. The ideal is an equal part for
each owner, and for each sweep of an owner: 4, 2 + 2 and 2 + 2 processors. Ada's sweep starts a minute before
the others and holds everything by then. The rules are the service's own. Trials report every second and train
nothing.

Printed for each sweep are the mean number of trials that it ran, beside the ideal one, over the minutes after
all shares were reached for the first time, and how long that took. The capacity lost to moves is the time in
which attempts after a shed start, and the work since the last report before it, over all places and minutes,
the minutes of the convergence included.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import matplotlib

from benchmarks.sharing.real import Load, nodes, samples, start
from orchestrator.ledger.keys import attempt_number
from orchestrator.ledger.ledger import Ledger
from orchestrator.sharing.rows import RULES

NODES, CPUS = 6, 2
OWNERS = {"first": "ada", "second": "bob", "third": "bob", "fourth": "cyd", "fifth": "cyd"}
IDEAL = {"first": 4, "second": 2, "third": 2, "fourth": 2, "fifth": 2}
STEPS, PAUSE = 600, 1.0
ALONE = 60.0
"""Seconds for which the first sweep is alone."""

LONGEST = 500.0
"""Seconds after which the benchmark gives up waiting for all shares."""

History = Mapping[str, Sequence[tuple[float, int]]]
"""By sweep: seconds since the last start, and the number of running trials from then on."""


class Lost(NamedTuple):
    """What moves have cost.

    Attributes:
        sheds: trials that were given up for another sweep.
        seconds: of places, in which no trial made progress for that.
    """

    sheds: int
    seconds: float


def history(folder: Path, zero: float) -> History:
    """Return what every sweep has run so far."""
    return {
        name: [(sample["time"] - zero, sample["running"]) for sample in samples(folder, name)]
        for name in OWNERS
    }


def mean(points: Sequence[tuple[float, int]], begin: float, end: float) -> float:
    """Return the mean of a step function between two times."""
    held = [(max(at, begin), min(after, end), count) for (at, count), (after, _) in pairwise(points)]
    return sum((stop - at) * count for at, stop, count in held if stop > at) / (end - begin)


def reached(folder: Path) -> bool:
    """Return True if every sweep runs as many trials as it should."""
    latest = {name: ([{"running": 0}, *samples(folder, name)])[-1]["running"] for name in OWNERS}
    return latest == IDEAL


def lost(folder: Path) -> Lost:
    """Return what the moves of all sweeps have cost, by the ledger."""
    ledger = Ledger.open(f"sqlite:///{folder}/mlruns/sweeps.db")
    sheds, seconds = 0, 0.0
    for sweep in ledger.sweeps():
        attempts = {attempt.id: attempt for attempt in ledger.attempts(sweep.id)}
        times: dict[str, list[float]] = {}
        for report in ledger.reports(sweep.id):
            times.setdefault(report.attempt_id, []).append(report.at)
        for attempt in attempts.values():
            if attempt.cause != "shared":
                continue
            sheds += 1
            assert attempt.ended_at is not None
            seconds += attempt.ended_at - max(times.get(attempt.id, [attempt.started_at]))
            following = attempts.get(f"{attempt.trial_key}.{attempt_number(attempt.id) + 1}")
            if following is not None and following.id in times:
                seconds += min(times[following.id]) - PAUSE - following.started_at
    ledger.close()
    return Lost(sheds, seconds)


def draw(runs: History, file: Path) -> None:
    """Draw what every sweep runs, over its ideal share."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(runs), sharex=True, figsize=(8, 1.3 * len(runs)))
    for axis, (name, points) in zip(axes, runs.items(), strict=True):
        minutes = [at / 60 for at, _ in points]
        axis.fill_between(minutes, IDEAL[name], alpha=0.3, label="ideal")
        axis.step(minutes, [count for _, count in points], where="post", label="runs")
        axis.set_ylabel(f"{OWNERS[name]}: {name}", fontsize=8)
    axes[0].legend(loc="upper right")
    axes[-1].set_xlabel("minutes since the last start")
    figure.tight_layout()
    figure.savefig(file, dpi=100)


def run(folder: Path, minutes: float, file: Path | None) -> None:
    """Run the sweeps and print the tables."""
    drivers = {}
    with nodes(folder, NODES, CPUS):
        try:
            for name, owner in OWNERS.items():
                drivers[name] = start(folder, Load(name, owner, 4000, STEPS, PAUSE), RULES)
                time.sleep(ALONE if name == "first" else 0)
            while not all(samples(folder, name) for name in OWNERS):
                time.sleep(0.5)
            zero = time.time()
            while not reached(folder) and time.time() < zero + LONGEST:
                time.sleep(0.5)
            converged = time.time() - zero
            time.sleep(60 * minutes)
            runs, end = history(folder, zero), time.time() - zero
        finally:
            for driver in drivers.values():
                driver.kill()
                driver.wait()
    print(f"all shares were reached {converged:.0f} s after the last of the sweeps had started\n")
    print("| sweep | owner | ideal | mean | off by |\n|---|---|---|---|---|")
    for name, ideal in IDEAL.items():
        held = mean(runs[name], converged, end)
        print(f"| {name} | {OWNERS[name]} | {ideal} | {held:.2f} | {held / ideal - 1:+.1%} |")
    cost, places = lost(folder), NODES * CPUS * end
    used = sum(mean(points, 0.0, end) for points in runs.values()) / (NODES * CPUS)
    print(f"\nplaces in use since the last start, the convergence included: {used:.1%}")
    print(f"\n{cost.sheds} trials moved; {cost.seconds:.0f} of {places:.0f} seconds of places lost", end="")
    print(f" to it: {cost.seconds / places:.2%}")
    if file is not None:
        draw(runs, file)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="of the measurement")
    parser.add_argument("--picture", type=Path, help="PNG of what every sweep ran")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sh-"))
    try:
        run(folder, options.minutes, options.picture)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
