"""Run simulated sweeps or services: `python -m tests.simulation SEED` prints the trace of one seed."""

from __future__ import annotations

import argparse
import logging
import os

from tests.simulation import many
from tests.simulation.runs import NAMES, shrunk, simulate


def main() -> int:
    """Replay one seed, or run many; return 1 if an invariant is violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seed", type=int, help="the seed to replay, or the first of many")
    parser.add_argument("--count", type=int, default=1, help="number of seeds")
    parser.add_argument("--size", choices=NAMES, default="short", help="of the sweeps, or service")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="that share the seeds")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first failing seed")
    parser.add_argument("--whole", action="store_true", help="keep every fault of a failing seed")
    options = parser.parse_args()
    logging.disable()  # a trace says what happened
    if options.count == 1:
        result = simulate(options.seed, options.size)
        print(result if options.whole or result.violation is None else shrunk(result))
        return int(result.violation is not None)
    seeds = range(options.seed, options.seed + options.count)
    return many.run(seeds, options.size, processes=options.processes, until_failure=options.until_failure)


if __name__ == "__main__":
    raise SystemExit(main())
