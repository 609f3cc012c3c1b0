"""Timings that are taken in turns, and a description of the machine."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import jax

ROOT = Path(__file__).parents[1]


def in_turns(
    functions: Mapping[str, Callable[[], Any]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the median seconds of each function, called in turns; of the processor by `time.process_time`.

    Each timed call follows another of the same function, as in training: the first one after other functions
    compiles, or pays for pages of memory that they gave back to the system.
    """
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            jax.block_until_ready(function())
            began = clock()
            jax.block_until_ready(function())
            taken[name].append(clock() - began)
    return {name: median(seconds) for name, seconds in taken.items()}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(map(line, [header, ["---"] * len(header), *rows]))


def line(cells: Sequence[str]) -> str:
    """Return a line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def circumstances() -> str:
    """Return commit, device, cores, load and JAX version as one line."""
    git = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    device = jax.devices()[0].device_kind
    load = os.getloadavg()[0]
    return (
        f"Commit {commit or 'unknown'}; {device}, {os.cpu_count()} cores, load {load:.1f} at the end; "
        f"jax {jax.__version__}."
    )
