"""Seeded work in chunks, whose results do not depend on the number of processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import TypeVar

Chunk = TypeVar("Chunk")
Result = TypeVar("Result")


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(
    function: Callable[[Chunk], Result], chunks: Iterable[Chunk], processes: int
) -> Iterator[Result]:
    """Yield `function(chunk)` for each chunk, in the chunks' order.

    Args:
        function: Module-level function; its result may depend on its chunk alone.
        chunks: Chunks, possibly without end; only a few are read in advance.
        processes: Number of worker processes; with 1, this process does the work.
    """
    if processes == 1:
        yield from map(function, chunks)
        return
    # Spawned, not forked: the caller may hold threads (JAX, Ray) that do not survive a fork.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_ignore_interrupts)
    try:
        yield from _windowed(pool, function, iter(chunks), ahead=2 * processes)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _windowed(
    pool: ProcessPoolExecutor, function: Callable[[Chunk], Result], chunks: Iterator[Chunk], ahead: int
) -> Iterator[Result]:
    waiting: deque[Future[Result]] = deque()
    for chunk in chunks:
        waiting.append(pool.submit(function, chunk))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _ignore_interrupts() -> None:
    # Ctrl-C reaches the whole process group; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
