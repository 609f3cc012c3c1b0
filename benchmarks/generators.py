"""Generation speed of the generated tasks: ListOps, Pathfinder and Path-X.

    python -m benchmarks.generators [--listops 100000] [--pathfinder 200000] [--pathx 1000] [--processes 2]

Each task is generated from seed 0 at its published lengths and difficulty, and discarded. Core seconds are
summed over all processes; on a busy machine they are more meaningful than elapsed time.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Iterator

from trainables.data.parallel import cores
from trainables.tasks.listops_rule import Rule
from trainables.tasks.listops_rule import generated as expressions
from trainables.tasks.pathfinder.rule import CONTOURS
from trainables.tasks.pathfinder.snakes import Work
from trainables.tasks.pathfinder.snakes import generated as images


def listops(number: int, processes: int) -> Iterator[int]:
    """Yield the number of expressions generated so far, until there are at least `number`."""
    batches = expressions(Rule(seed=0, min_length=500, max_length=2000), processes)
    done = 0
    while done < number:
        done += len(next(batches).lengths)
        yield done
    batches.close()


def pathfinder(side: int) -> Callable[[int, int], Iterator[int]]:
    """Return a function that generates images of one size, and yields how many it has generated."""

    def made(number: int, processes: int) -> Iterator[int]:
        done = 0
        for _, labels in images(Work(side, CONTOURS["hard"], 0, number), processes):
            done += len(labels)
            yield done

    return made


def core_seconds() -> float:
    """Return the processor time of this process and of its finished children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def main() -> None:
    """Print one row per generator."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--listops", type=int, default=100_000)
    parser.add_argument("--pathfinder", type=int, default=200_000)
    parser.add_argument("--pathx", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=cores())
    options = parser.parse_args()
    rows = (
        ("listops", options.listops, listops),
        ("pathfinder", options.pathfinder, pathfinder(32)),
        ("pathx", options.pathx, pathfinder(128)),
    )
    print(f"| task | number | processes | seconds | core seconds | core ms each |\n|{'---|' * 6}")
    for name, number, generate in rows:
        if number:
            began, used = time.perf_counter(), core_seconds()
            for _ in generate(number, options.processes):
                pass
            seconds, used = time.perf_counter() - began, core_seconds() - used
            per_item = 1000 * used / number
            print(
                f"| {name} | {number:,} | {options.processes} "
                f"| {seconds:.1f} | {used:.1f} | {per_item:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
