"""`python -m benchmarks.sharing`: the table and the picture of docs/benchmarks/sharing.md.

python -m benchmarks.sharing                  # the table; some minutes
python -m benchmarks.sharing speed            # seconds of one decision
python -m benchmarks.sharing picture FILE     # shares over time, as a PNG
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import matplotlib

from benchmarks.sharing.load import Scenario, places, turns, with_classes, with_crashes, with_devices
from benchmarks.sharing.policies import POLICIES, fair
from benchmarks.sharing.simulation import Outcome, Simulation
from orchestrator.sharing.fill import fill
from orchestrator.sharing.rows import UNIT, PoolClaim, PoolNode, Rules

RULES = Rules(min_run=300.0)


def scenarios() -> Iterator[Scenario]:
    """Yield the pools of the table."""
    yield from (places(2, 6), places(8, 12), places(32, 30))
    yield with_crashes(places(8, 12))
    yield with_classes(places(8, 12))
    yield with_devices(places(8, 12))
    yield turns()


def row(scenario: Scenario, policy: str, outcome: Outcome) -> str:
    """Return a line of the table in Markdown."""
    figures = (
        f"{outcome.sheds}",
        f"{outcome.lost / outcome.capacity:.1%}",
        f"{outcome.busy / outcome.capacity:.1%}",
        f"{max(outcome.shortages, default=0.0):.0f} s",
        f"{max(outcome.gaps.values(), default=0.0) / 60:.0f} min",
    )
    return f"| {scenario.name} | {policy} | {' | '.join(figures)} |"


def table() -> None:
    """Print the table."""
    print("| pool | policy | sheds | capacity lost | in use | longest shortage | longest wait of an owner |")
    print("|---|---|---|---|---|---|---|")
    for scenario in scenarios():
        for name, policy in POLICIES.items():
            print(row(scenario, name, Simulation(scenario, policy, RULES).run()), flush=True)


def speed() -> None:
    """Print how long one decision takes; only the first one after a change of the rows is computed."""
    for sweeps, gpus in ((20, 64), (300, 1024)):
        nodes = [PoolNode(f"n{k:03}", 96 * UNIT, 8) for k in range(gpus // 8)]
        claims = [PoolClaim(f"s{k}", f"o{k % 40}", float(k), UNIT, 1 + k % 2, 16) for k in range(sweeps)]
        seconds = []
        for _ in range(21):
            began = time.perf_counter()
            fill(nodes, [], claims)
            seconds.append(time.perf_counter() - began)
        figures = f"median {1000 * median(seconds):.2f} ms, longest {1000 * max(seconds):.2f} ms"
        print(f"{sweeps} sweeps, {gpus} GPUs: {figures}")


def picture(file: Path) -> None:
    """Draw what every owner holds, over the area of its share."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    scenario = places(8, 12)
    outcome = Simulation(scenario, fair, RULES).run()
    owners = [owner.name for owner in scenario.owners]
    minutes = [at / 60 for at in outcome.history]
    figure, axes = pyplot.subplots(len(owners), sharex=True, figsize=(8, 1.5 * len(owners)))
    for axis, owner in zip(axes, owners, strict=True):
        share = [target[owner] for target in outcome.targets.values()]
        axis.fill_between(minutes, share, step="post", alpha=0.3, label="share")
        axis.step(minutes, [held[owner] for held in outcome.history.values()], where="post", label="runs")
        axis.set_ylabel(owner)
    axes[0].legend(loc="upper right")
    axes[-1].set_xlabel("minutes")
    figure.tight_layout()
    figure.savefig(file, dpi=100)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if not arguments:
        table()
    elif arguments == ["speed"]:
        speed()
    else:
        picture(Path(arguments[1]))
