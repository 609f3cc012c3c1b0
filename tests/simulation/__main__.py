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
    parser.add_argument(
        "--counts", nargs="+", type=_count, metavar="SIZE=COUNT", help="numbers of seeds of several sizes"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="that share the seeds")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first failing seed")
    parser.add_argument("--whole", action="store_true", help="keep every fault of a failing seed")
    options = parser.parse_args()
    logging.disable()  # a trace says what happened
    if options.count == 1 and not options.counts:
        result = simulate(options.seed, options.size)
        print(result if options.whole or result.violation is None else shrunk(result))
        return int(result.violation is not None)
    failed = 0
    for size, count in options.counts or [(options.size, options.count)]:
        seeds = range(options.seed, options.seed + count)
        failed |= many.run(seeds, size, processes=options.processes, until_failure=options.until_failure)
    return failed


def _count(text: str) -> tuple[str, int]:
    size, _, count = text.partition("=")
    if size not in NAMES or not count.isdecimal():
        raise argparse.ArgumentTypeError(f"must be SIZE=COUNT, such as short=2000 (got {text})")
    return size, int(count)


if __name__ == "__main__":
    raise SystemExit(main())
