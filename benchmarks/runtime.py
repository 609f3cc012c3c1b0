"""Nonlinear against linear recurrent networks as the sequence length grows.

    python -m benchmarks.runtime [--rounds 7] [--figure docs/benchmarks/runtime.png]

One layer of each kind with D 32 and N 32 (S4D: 32 per channel) on 4 sequences: outputs, and gradients by the
parameters and the input. Prints one table and plots it.

Source: LDStack, figure 6, top right; n 32 and batch 4 are from its section 10.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.timing import circumstances, in_turns, table
from trainables.layers import LAYERS

D, N, BATCH = 32, 32, 4
NONLINEAR = ("tanh_rnn", "lstm")
LINEAR = ("linear_rnn", "rotrnn", "lru", "s5", "s4d", "ldstack")
OPTIONS: Mapping[str, Mapping[str, Any]] = {"rotrnn": {"heads": 8}}
PASSES = ("forward", "gradient")

Seconds = Mapping[str, Mapping[str, Sequence[float]]]
"""Pass -> layer -> seconds at every length."""


def passes(name: str, length: int) -> dict[str, Callable[[], Any]]:
    """Return a function that computes a layer's outputs, and one that computes its gradients."""
    build: Any = LAYERS[name]
    layer = build(D, N, rngs=nnx.Rngs(0), **OPTIONS.get(name, {}))
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
    options = parser.parse_args()
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
