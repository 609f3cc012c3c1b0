"""The gradient of layers on a CPU with pages of 4 KiB and of 2 MiB.

    python -m benchmarks.huge_pages [--processes 3] [--rounds 5]

XLA allocates the temporary memory of a program anew for each call, and Linux hands it out page by page. Batch
128 of the 784 steps of psMNIST, at the sizes of experiments/ldstack-psmnist.yaml, and batch 32 of 1,024 steps
with D 128, N 256; gradients by the parameters. Each process has the environment of a worker, which asks XLA
for one thread, and one of the two sizes of pages, in turns. Processor time counts, with the share that the
system takes of it: others on the machine do not change it much.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from statistics import median
from typing import Any

from benchmarks.timing import circumstances, line
from orchestrator.schedule.environment import HUGE_PAGES
from orchestrator.training.process import worker_environment

CASES: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    "`tanh_rnn`, psMNIST": ("tanh_rnn", 128, 784, {"d_model": 10, "d_state": 128}),
    "`lstm`, psMNIST": ("lstm", 128, 784, {"d_model": 10, "d_state": 128}),
    "`rotrnn`, psMNIST": ("rotrnn", 128, 784, {"d_model": 32, "d_state": 64, "heads": 8}),
    "`lds`, psMNIST": (
        "lds",
        128,
        784,
        {"d_model": 10, "d_state": 784, "eigenvalues": "hinge", "projections": 1},
    ),
    "`rotrnn`, L 1,024": ("rotrnn", 32, 1024, {"d_model": 128, "d_state": 256, "heads": 32}),
    "`lru`, L 1,024": ("lru", 32, 1024, {"d_model": 128, "d_state": 256}),
}
"""By row: layer, batch, length, and the layer's other sizes."""

PAGES = {"4 KiB": dict.fromkeys(HUGE_PAGES, ""), "2 MiB": HUGE_PAGES}


def measured(case: str, rounds: int) -> dict[str, float]:
    """Return the median processor seconds of a gradient, and those of the system among them."""
    import jax
    from flax import nnx
    from jax import Array
    from jax import numpy as jnp

    from trainables.layers import LAYERS

    name, batch, length, sizes = CASES[case]
    build: Any = LAYERS[name]
    graph, parameters, *rest = nnx.split(build(**sizes, rngs=nnx.Rngs(0)), nnx.Param, ...)
    u, towards = jax.random.normal(jax.random.key(1), (2, batch, length, sizes["d_model"]))

    def loss(parameters: Any, u: Array) -> Array:
        layer = nnx.merge(graph, parameters, *rest)
        return jnp.vdot(jax.vmap(lambda u: layer(u))(u), towards)

    gradient = jax.jit(jax.grad(loss)).lower(parameters, u).compile()
    jax.block_until_ready(gradient(parameters, u))
    taken = []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_SELF)
        jax.block_until_ready(gradient(parameters, u))
        after = resource.getrusage(resource.RUSAGE_SELF)
        of_system = after.ru_stime - before.ru_stime
        taken.append((after.ru_utime - before.ru_utime + of_system, of_system))
    total, of_system = (median(column) for column in zip(*taken, strict=True))
    return {"total": total, "system": of_system}


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(options.child, options.rounds)))
        return
    print(line(["gradient of", "4 KiB, ms", "of the system", "2 MiB, ms", "of the system", "4 KiB / 2 MiB"]))
    print(line(["---"] * 6))
    command = [sys.executable, "-m", "benchmarks.huge_pages", f"--rounds={options.rounds}", "--child"]
    for case in CASES:
        runs: dict[str, list[dict[str, float]]] = {size: [] for size in PAGES}
        for _ in range(options.processes):
            for size, variables in PAGES.items():
                environment = {**os.environ, **worker_environment(0.0), **variables}
                done = subprocess.run([*command, case], env=environment, stdout=subprocess.PIPE, check=True)
                runs[size].append(json.loads(done.stdout.splitlines()[-1]))
        pairs = zip(*runs.values(), strict=True)
        ratios = [small["total"] / huge["total"] for small, huge in pairs]
        row = [case]
        for of_size in runs.values():
            total = median(run["total"] for run in of_size)
            share = median(run["system"] / run["total"] for run in of_size)
            row += [f"{1000 * total:.0f}", f"{share:.0%}"]
        print(line([*row, f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"]), flush=True)
    print(f"\nMedians over {options.processes} processes. {circumstances()}")


if __name__ == "__main__":
    main()
