"""Runs many seeds on every processor. Its processes are forked: each would import for five seconds."""

from __future__ import annotations

import logging
import multiprocessing
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from tests.simulation.known import is_known
from tests.simulation.runs import simulate

PROGRESS_SECONDS = 10.0


def run(seeds: range, size: str, *, processes: int, until_failure: bool) -> int:
    """Run seeds, and print those that fail; return 1 if one does.

    Args:
        seeds: Seeds to run.
        size: One of `runs.NAMES`.
        processes: Processes that run them.
        until_failure: Whether to stop at the first seed that fails.
    """
    began, done, failed, shown = time.monotonic(), 0, 0, time.monotonic()
    with ExitStack() as stack:
        outcomes: Iterator[tuple[int, str, bool]] = map(partial(_outcome, size), seeds)
        if processes > 1:
            pool = stack.enter_context(multiprocessing.get_context("fork").Pool(processes))
            outcomes = pool.imap(partial(_outcome, size), seeds, chunksize=4)
        for seed, line, known in outcomes:
            done += 1
            if line:
                failed += not known
                print(f"seed {seed}: {'known: ' if known else ''}{line}", flush=True)
            if failed and until_failure:
                break
            if time.monotonic() - shown > PROGRESS_SECONDS:
                shown = time.monotonic()
                print(f"{done} of {len(seeds)} seeds, {failed} failed", file=sys.stderr, flush=True)
    took = time.monotonic() - began
    print(f"{done} seeds, {failed} failed, {took:.1f} s in {processes} processes ({size})", flush=True)
    return int(failed > 0)


def _outcome(size: str, seed: int) -> tuple[int, str, bool]:
    """Return a seed, the invariant that it violates, if any, and whether the defect is known."""
    logging.disable()  # a trace says what happened
    violation = simulate(seed, size).violation
    return seed, str(violation or ""), violation is not None and is_known(violation)
