"""Run simulated sweeps: `python -m tests.simulation SEED` replays one seed and prints its trace."""

from __future__ import annotations

import argparse
import logging
import time

from tests.simulation.known import is_known
from tests.simulation.simulation import shrunk, simulate


def main() -> int:
    """Replay one seed, or run many; return 1 if an invariant is violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seed", type=int, help="the seed to replay, or the first of many")
    parser.add_argument("--count", type=int, default=1, help="number of seeds")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first failing seed")
    parser.add_argument("--whole", action="store_true", help="keep every fault of a failing seed")
    options = parser.parse_args()
    logging.disable()  # a trace says what happened
    if options.count == 1:
        result = simulate(options.seed)
        print(result if options.whole or result.violation is None else shrunk(result))
        return int(result.violation is not None)
    began, failed = time.process_time(), 0
    for seed in range(options.seed, options.seed + options.count):
        result = simulate(seed)
        if result.violation is not None:
            known = is_known(result.violation)
            failed += not known
            print(f"seed {seed}: {'known: ' if known else ''}{result.violation}", flush=True)
        if failed and options.until_failure:
            break
    print(f"{options.count} seeds, {failed} failed, {time.process_time() - began:.1f} s of one processor")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
