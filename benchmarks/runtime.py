"""Nonlinear against linear recurrent networks as the sequence length grows.

    python -m benchmarks.runtime [--rounds 7] [--figure docs/benchmarks/runtime.png]
    python -m benchmarks.runtime --newton [--lengths 256 1024 4096 16384] [--sizes 4 16 64] [--rounds 5]

One layer of each kind with D 32 and N 32 (S4D: 32 per channel) on 4 sequences: outputs, and gradients by the
parameters and the input. Prints one table and plots it. With --newton: how many times faster than the loop
over time Newton's method is, for each layer that has it, by wall-clock time and by time of the processor.

Source: LDStack, figure 6, top right; n 32 and batch 4 are from its section 10.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.timing import circumstances, in_turns, line, table
from trainables.layers import LAYERS

D, N, BATCH = 32, 32, 4
NONLINEAR = ("tanh_rnn", "lstm")
LINEAR = ("linear_rnn", "rotrnn", "lru", "s5", "s4d", "ldstack")
OPTIONS: Mapping[str, Mapping[str, Any]] = {"rotrnn": {"heads": 8}}
PASSES = ("forward", "gradient")
NEWTON_HEADER = [
    "layer",
    "N",
    "L",
    *(f"{one}: {cell}" for one in PASSES for cell in ("loop, ms", "wall", "CPU")),
]

Seconds = Mapping[str, Mapping[str, Sequence[float]]]
"""Pass -> layer -> seconds at every length."""


def passes(name: str, length: int, size: int = N, **options: Any) -> dict[str, Callable[[], Any]]:
    """Return a function that computes a layer's outputs, and one that computes its gradients."""
    build: Any = LAYERS[name]
    layer = build(D, size, rngs=nnx.Rngs(0), **OPTIONS.get(name, {}), **options)
    graph, *parts = nnx.split(layer, nnx.Param, ...)
    parameters, fixed = parts
    u, towards = jax.random.normal(jax.random.key(1), (2, BATCH, length, D))

    def outputs(parameters: Any, u: Array) -> Array:
        return jax.vmap(nnx.merge(graph, parameters, fixed))(u)

    def loss(parameters: Any, u: Array, towards: Array) -> Array:
        return jnp.vdot(outputs(parameters, u), towards)

    forward = partial(jax.jit(outputs), parameters, u)
    return {"forward": forward, "gradient": partial(jax.jit(jax.grad(loss, (0, 1))), parameters, u, towards)}


def measured(lengths: Sequence[int], rounds: int) -> Seconds:
    """Return the seconds of every layer; all layers of one length are timed in turns."""
    seconds: dict[str, dict[str, list[float]]] = {
        direction: {name: [] for name in NONLINEAR + LINEAR} for direction in PASSES
    }
    for length in lengths:
        functions = {name: passes(name, length) for name in NONLINEAR + LINEAR}
        for direction in PASSES:
            timed = in_turns({name: pair[direction] for name, pair in functions.items()}, rounds)
            for name, median in timed.items():
                seconds[direction][name].append(median)
    return seconds


def gradient_seconds(*, layer: str, length: int, seed: int, rounds: int = 7) -> dict[str, float]:
    """Return the seconds of the gradients of one layer, the median of some rounds, for an experiment file."""
    del seed  # another seed measures again
    return {"value": in_turns({layer: passes(layer, length)["gradient"]}, rounds)[layer]}


def newton_rows(
    names: Sequence[str], lengths: Sequence[int], sizes: Sequence[int], rounds: int
) -> Iterator[list[str]]:
    """Yield a row of each layer, size and length: the loop's ms, and both passes' ratios on two clocks."""
    for name, size, length in itertools.product(names, sizes, lengths):
        forms = {form: passes(name, length, size, algorithm=form) for form in ("sequential", "newton")}
        cells = []
        for direction in PASSES:
            functions = {form: pair[direction] for form, pair in forms.items()}
            wall, processor = (
                in_turns(functions, rounds, clock) for clock in (time.perf_counter, time.process_time)
            )
            cells += [
                f"{1000 * wall['sequential']:.2f}",
                *(f"{timed['sequential'] / timed['newton']:.2f}" for timed in (wall, processor)),
            ]
        yield [name, str(size), f"{length:,}", *cells]


def drawn(lengths: Sequence[int], seconds: Seconds) -> Figure:
    """Plot time against length; nonlinear networks are dashed."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    panels: Sequence[Axes] = figure.subplots(1, len(PASSES), sharey=True)
    for panel, (title, layers) in zip(panels, seconds.items(), strict=True):
        for name, times in layers.items():
            style = "o--" if name in NONLINEAR else "o-"
            panel.loglog(lengths, [1000 * time for time in times], style, label=name, markersize=3)
        panel.set(title=title, xlabel="length L", xticks=lengths, xticklabels=[f"{n:,}" for n in lengths])
        panel.minorticks_off()
    panels[0].set_ylabel("ms")
    panels[0].legend(fontsize="small")
    return figure


def main() -> None:
    """Print one row per layer and pass, and save the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 256, 1024, 4096])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--figure", type=Path, default=Path("docs/benchmarks/runtime.png"))
    parser.add_argument("--newton", action="store_true", help="compare Newton's method with the loop")
    parser.add_argument("--layers", nargs="+", default=["tanh_rnn", "gru", "lstm"], help="with --newton")
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 16, 64], help="with --newton: N")
    options = parser.parse_args()
    if options.newton:
        print(line(NEWTON_HEADER), line(["---"] * len(NEWTON_HEADER)), sep="\n")
        for row in newton_rows(options.layers, options.lengths, options.sizes, options.rounds):
            print(line(row), flush=True)
        print(f"\n{circumstances()}")
        return
    seconds = measured(options.lengths, options.rounds)
    rows = [
        [name, direction, *(f"{1000 * time:.2f}" for time in times)]
        for direction, layers in seconds.items()
        for name, times in layers.items()
    ]
    print(table(["layer", "pass", *(f"L {length:,}, ms" for length in options.lengths)], rows))
    print(f"\n{circumstances()}")
    drawn(options.lengths, seconds).savefig(options.figure, dpi=120)


if __name__ == "__main__":
    main()
