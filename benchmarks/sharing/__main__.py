"""`python -m benchmarks.sharing`: the table and the picture of docs/benchmarks/sharing.md.

python -m benchmarks.sharing                  # the table; some minutes
python -m benchmarks.sharing speed            # seconds of one decision
python -m benchmarks.sharing picture FILE     # shares over time, as a PNG
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import matplotlib

from benchmarks.sharing.load import Scenario, places, turns, with_classes, with_crashes, with_devices
from benchmarks.sharing.policies import POLICIES, fair
from benchmarks.sharing.simulation import Outcome, Simulation
from orchestrator.ledger.claims import Amounts, Claims
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.lease_backends import next_token
from orchestrator.ledger.ledger import Ledger
from orchestrator.sharing.fill import fill
from orchestrator.sharing.rows import UNIT, Place, PoolClaim, PoolNode, Rules, Snapshot, Use
from orchestrator.sharing.shedding import demands
from orchestrator.sharing.view import View, _filled, renewed
from orchestrator.system import System

RULES = Rules(min_run=300.0)
NOW = 1_000_000.0


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
    """Print how long decisions take: the shares alone, a decision, and with its transaction (SQLite).

    A third of the sweeps are short and the others above their shares, so that a decision deals out sheds. The
    shares are computed anew each time, as after a change of the rows. Holds are computed only while a trial
    fits no node: that is the decision with a hold.
    """
    for sweeps, gpus in ((20, 64), (300, 1024)):
        rows = crowded(sweeps, gpus)
        with tempfile.TemporaryDirectory() as folder:
            claims = entered(Ledger.open(f"sqlite:///{folder}/sweeps.db"), rows)
            for name, work in decisions(rows, claims).items():
                print(f"{sweeps} sweeps, {gpus} GPUs, {name}: {timed(work)}", flush=True)


def decisions(rows: Snapshot, claims: Claims) -> dict[str, Callable[[], object]]:
    """Return, by name, what `speed` measures for the rows of one pool, entered in a ledger."""
    hungry, amounts, sweep = starved(rows), _amounts(rows.uses[0]), rows.claims[0].sweep
    return {
        "shares": lambda: fill(rows.nodes, rows.owners, rows.claims),
        "decision with a hold": lambda: decided(View.of(hungry, NOW), sweep),
        "decision": lambda: decided(View.of(rows, NOW), sweep),
        "with its transaction": lambda: decided(claims.renew(rows.nodes, amounts), sweep),
    }


def timed(work: Callable[[], object]) -> str:
    """Return the median wall-clock time and processor time of a call that finds no shares computed."""
    wall, processor = [], []
    for _ in range(21):
        _filled.cache_clear()
        began, used = time.perf_counter(), time.process_time()
        work()
        wall.append(time.perf_counter() - began)
        processor.append(time.process_time() - used)
    return f"median {1000 * median(wall):.2f} ms, of the processor {1000 * median(processor):.2f} ms"


def crowded(sweeps: int, gpus: int) -> Snapshot:
    """Return the rows of a pool in which one sweep of three is short, and the others hold too much."""
    nodes = tuple(PoolNode(f"n{k:03}", 96 * UNIT, 8) for k in range(gpus // 8))
    claims = tuple(PoolClaim(f"s{k:03}", f"o{k % 40}", float(k), UNIT, 1 + k % 2, 16) for k in range(sweeps))
    shares = fill(nodes, [], claims)

    def use(number: int, claim: PoolClaim) -> Use:
        is_short = number % 3 == 0
        devices = max(0, shares[claim.sweep].devices + (-2 if is_short else 1))
        since = NOW - RULES.shed_after if is_short else None
        return Use(claim.sweep, NOW, devices * claim.slots, 0, devices, short_since=since)

    return Snapshot(nodes, (), claims, tuple(use(number, claim) for number, claim in enumerate(claims)))


def starved(rows: Snapshot) -> Snapshot:
    """Return these rows with trials on every node, and five sweeps whose trials fit none of them.

    The trials of two of the five need as much as those of another one.
    """
    names = [node.name for node in rows.nodes]
    large = tuple(PoolClaim(f"w{k}", f"w{k}", float(k), (95 - k // 2) * UNIT, 0, 1) for k in range(5))
    waiting = tuple(Use(claim.sweep, NOW, 1, 1, pending_since=NOW - 25.0) for claim in large)

    def placed(number: int, use: Use) -> Use:
        nodes = [names[(number + step) % len(names)] for step in range(use.trials)]
        places = (Place(node, 1, int(step < use.devices), 1) for step, node in enumerate(nodes))
        return replace(use, places=tuple(places))

    uses = tuple(placed(number, use) for number, use in enumerate(rows.uses))
    return replace(rows, claims=(*rows.claims, *large), uses=(*uses, *waiting))


def entered(ledger: Ledger, rows: Snapshot) -> Claims:
    """Write rows into a ledger as the drivers of all sweeps; return the claim of the first one."""
    written = []
    for claim, use in zip(rows.claims, rows.uses, strict=True):
        token = next_token(ledger.writer, claim.sweep, Holder.here(System()))
        written.append(Claims(ledger, token, "pool", claim, Rules(dead_after=86_400.0)))
        written[-1].renew(rows.nodes, _amounts(use))
    return written[0]


def _amounts(use: Use) -> Amounts:
    return Amounts(16, use.trials, 0, use.devices)


def decided(view: View | None, sweep: str) -> None:
    """Do what a driver does with a view: may it start one, why does it wait, who gives up what."""
    assert view is not None, "a ledger in a file answers"
    view.may_start(sweep)
    view.why_waiting(sweep)
    renewed(view, view.uses[sweep])
    demands(view)


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


def main() -> None:
    """Print the table, or what the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sharing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("speed", help="print the seconds of one decision")
    drawn = commands.add_parser("picture", help="draw the shares over time")
    drawn.add_argument("file", type=Path)
    options = parser.parse_args()
    if options.command is None:
        table()
    elif options.command == "speed":
        speed()
    else:
        picture(options.file)


if __name__ == "__main__":
    main()
