"""Run simulated sweeps: `python -m tests.simulation SEED` replays one seed and prints its trace."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time

from tests.simulation.known import is_known
from tests.simulation.simulation import shrunk, simulate

PROGRESS_SECONDS = 10.0


def main() -> int:
    """Replay one seed, or run many; return 1 if an invariant is violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seed", type=int, help="the seed to replay, or the first of many")
    parser.add_argument("--count", type=int, default=1, help="number of seeds, shared by all processors")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first failing seed")
    parser.add_argument("--whole", action="store_true", help="keep every fault of a failing seed")
    options = parser.parse_args()
    logging.disable()  # a trace says what happened
    if options.count == 1:
        result = simulate(options.seed)
        print(result if options.whole or result.violation is None else shrunk(result))
        return int(result.violation is not None)
    return run(range(options.seed, options.seed + options.count), until_failure=options.until_failure)


def run(seeds: range, *, until_failure: bool) -> int:
    """Run seeds on every processor, and print those that fail; return 1 if one does."""
    began, done, failed, shown = time.monotonic(), 0, 0, time.monotonic()
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        for seed, line, known in pool.imap(_outcome, seeds, chunksize=4):
            done += 1
            if line:
                failed += not known
                print(f"seed {seed}: {'known: ' if known else ''}{line}", flush=True)
            if failed and until_failure:
                break
            if time.monotonic() - shown > PROGRESS_SECONDS:
                shown = time.monotonic()
                print(f"{done} of {len(seeds)} seeds, {failed} failed", file=sys.stderr, flush=True)
    print(f"{done} seeds, {failed} failed, {time.monotonic() - began:.1f} s on {os.cpu_count()} processors")
    return int(failed > 0)


def _outcome(seed: int) -> tuple[int, str, bool]:
    """Return a seed, the invariant that it violates, if any, and whether the defect is known."""
    logging.disable()
    violation = simulate(seed).violation
    return seed, str(violation or ""), violation is not None and is_known(violation)


if __name__ == "__main__":
    raise SystemExit(main())
