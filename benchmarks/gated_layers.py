"""The gradient of layers that look at their input, against the two forms that one would write first.

    python -m benchmarks.gated_layers [--cases delta_net delta_rule] [--processes 3] [--rounds 3]

Time at L 2,048, batch 8; memory at L 16,384, batch 1, by XLA's analysis (arguments, results and temporaries).
D 128, N 256 (S6: D 64, N 16; DeltaNet: N 128), gradients by the parameters and the input. DeltaNet has one
head of 128 channels, its default and the size in published language models, two with D 256, or four of 32.

    printed scan, printed associative   the equations of the papers as printed (`benchmarks.printed_gated`)
    scan          `lax.scan` of our layer's step, what is constant over the sequence computed before it
    associative   `lax.associative_scan` of the decays and inputs that our layer computes

S6 is printed as our steps compute it. `delta_rule` is DeltaNet's recurrence without projections, convolutions
and norms: 4 heads of 32 x 32 numbers, by chunks and by a loop over steps.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from benchmarks.printed_gated import PRINTED, prefixes, printed_delta_rule
from benchmarks.timing import circumstances, in_processes, in_turns, milliseconds, ratios, table
from trainables.layers import LAYERS
from trainables.layers.causal_conv import causal_conv
from trainables.layers.recurrence import in_chunks, times
from trainables.layers.recurrence.delta_rule import delta_rule
from trainables.layers.recurrence.wy_form import Steps

SIZES: dict[str, dict[str, Any]] = {
    "min_gru": {"d_model": 128, "d_state": 256},
    "rg_lru": {"d_model": 128, "d_state": 256, "heads": 16},
    "rot_gated": {"d_model": 128, "d_state": 256, "heads": 32},
    "s6": {"d_model": 64, "d_state": 16},
    "delta_net": {"d_model": 128, "d_state": 128},
    "delta_net/256": {"d_model": 256, "d_state": 256, "heads": 2},
    "delta_net/32": {"d_model": 128, "d_state": 128, "heads": 4},
}
"""By case: the name of a layer, and what follows a slash if there are several sizes of it."""

LONG, SHORT, BATCH = 16_384, 2_048, 8
CASES = (*SIZES, "delta_rule")
WIDTH = 32
"""Channels of keys and of values in a head of `delta_rule`."""


def scanned(layer: Any, u: Array) -> Array:
    """Run a layer one step after the other."""
    coefficients = layer.coefficients()

    def step(state: Any, now: Array) -> tuple[Any, Array]:
        state, row = layer.advance(coefficients, state, now)
        return state, layer.read(coefficients, row[None], backward=False)[0]

    return jax.lax.scan(step, layer.initial_state(), u)[1] + layer.skip(u)


def associative(layer: Any, u: Array) -> Array:
    """Run an elementwise recurrence by `lax.associative_scan`, with its decays and inputs of all steps."""
    if hasattr(layer, "gates"):
        coefficients = layer.coefficients()
        product = times if layer.planes else jnp.multiply
        states = prefixes(product, *layer.gates(coefficients, u))
        return layer.read(coefficients, states, backward=False) + layer.skip(u)
    x, gate = jnp.split(u @ layer.in_proj[...].T, 2, axis=1)
    x = causal_conv(layer.conv[...], jnp.zeros((3, x.shape[1])), x)[0]
    x = jax.nn.silu(x + layer.conv_bias[...])
    rank, count = layer.dt_proj.shape[1], layer.A_log.shape[1]
    step, into, out = jnp.split(x @ layer.x_proj[...].T, [rank, rank + count], axis=1)
    step = jax.nn.softplus(step @ layer.dt_proj[...].T + layer.dt_bias[...])
    decays = jnp.exp(-step[:, :, None] * jnp.exp(layer.A_log[...]))
    states = prefixes(jnp.multiply, decays, (step * x)[:, :, None] * into[:, None])
    answers = jnp.einsum("len,ln->le", states, out) + layer.D[...] * x
    return (answers * jax.nn.silu(gate)) @ layer.out_proj[...].T


FORMS: dict[str, Callable[[str, Any, Array], Array]] = {
    "ours": lambda _, layer, u: layer(u),
    "printed scan": lambda name, layer, u: PRINTED["printed scan"][name](layer, u),
    "printed associative": lambda name, layer, u: PRINTED["printed associative"][name](layer, u),
    "scan": lambda _, layer, u: scanned(layer, u),
    "associative": lambda _, layer, u: associative(layer, u),
}


def chunked_rule(*steps: Array) -> Array:
    """Return the answers of one head in chunks of 32 steps."""

    def chunk(state: Array, rows: Steps) -> tuple[Array, Array]:
        answers, state = delta_rule(rows, state, "chunked")
        return state, answers

    return in_chunks(chunk, jnp.zeros((WIDTH, WIDTH)), Steps(*steps), 32)


def looped_rule(*steps: Array) -> Array:
    """Return the same by a loop over our steps."""
    return delta_rule(Steps(*steps), jnp.zeros((WIDTH, WIDTH)), "sequential")[0]


RULES: dict[str, Callable[..., Array]] = {
    "ours": jax.vmap(chunked_rule),
    "printed scan": jax.vmap(printed_delta_rule),
    "scan": jax.vmap(looped_rule),
}


def rule_arguments(length: int, heads: int) -> tuple[Array, ...]:
    """Return random steps of the delta rule, (heads, length, ...), with keys and queries of norm 1."""
    keys = jax.random.split(jax.random.key(2), 4)
    queries, units, values = (jax.random.normal(key, (heads, length, WIDTH)) for key in keys[:3])
    sizes = jax.random.uniform(keys[3], (heads, length))
    unit = [rows / jnp.linalg.norm(rows, axis=-1, keepdims=True) for rows in (queries, units)]
    return (*unit, values, sizes)


def forms(name: str) -> list[str]:
    """Return the forms of a layer: the delta rule is not elementwise, and not all are printed otherwise."""
    if name.startswith("delta"):
        return list(RULES)
    return [form for form in FORMS if form not in PRINTED or name in PRINTED[form]]


def gradient(
    name: str, form: str, length: int, batch: int, **options: Any
) -> tuple[jax.stages.Wrapped, tuple[Any, ...]]:
    """Return the gradient of a layer by parameters and input, and its arguments; options are the layer's."""
    if name == "delta_rule":
        arguments = rule_arguments(length, 4 * batch)
        towards = jax.random.normal(jax.random.key(1), arguments[2].shape)
        return jax.jit(
            jax.grad(lambda *steps: jnp.vdot(RULES[form](*steps), towards), (0, 1, 2, 3))
        ), arguments
    layer_name = name.partition("/")[0]
    build: Any = LAYERS[layer_name]
    graph, parameters = nnx.split(build(**SIZES[name], **options, rngs=nnx.Rngs(0)))
    u, towards = jax.random.normal(jax.random.key(1), (2, batch, length, SIZES[name]["d_model"]))

    def loss(parameters: Any, u: Array, towards: Array) -> Array:
        layer = nnx.merge(graph, parameters).over(batch)
        return jnp.vdot(jax.vmap(lambda u: FORMS[form](layer_name, layer, u))(u), towards)

    return jax.jit(jax.grad(loss, argnums=(0, 1))), (parameters, u, towards)


def measured(cases: Sequence[str], rounds: int) -> dict[str, float]:
    """Return median seconds and bytes by "layer form" and "layer form bytes"."""
    answers: dict[str, float] = {}
    for name in cases:
        functions = {f"{name} {form}": gradient(name, form, SHORT, BATCH) for form in forms(name)}
        answers |= in_turns({key: partial(f, *a) for key, (f, a) in functions.items()}, rounds)
        for form in forms(name):
            function, arguments = gradient(name, form, LONG, 1)
            analysis = function.lower(*arguments).compile().memory_analysis()
            parts = ("argument", "output", "temp")
            total = sum(getattr(analysis, f"{part}_size_in_bytes") for part in parts)
            answers[f"{name} {form} bytes"] = float(total)
    return answers


def main() -> None:
    """Print one table of times and one of memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(options.cases, options.rounds)))
        return
    arguments = f"--rounds={options.rounds}", "--cases", *options.cases
    runs = in_processes("benchmarks.gated_layers", options.processes, *arguments)
    others = list(FORMS)[1:]
    times_of, bytes_of = [], []
    for name in options.cases:
        ours, has = f"{name} ours", forms(name)
        against = [ratios(runs, f"{name} {form}", ours) if form in has else "" for form in others]
        times_of.append([name, milliseconds(runs, ours), *against])
        whole = runs[0][f"{ours} bytes"]
        shares = [f"{whole / runs[0][f'{name} {form} bytes']:.2f}" if form in has else "" for form in others]
        bytes_of.append([name, f"{whole / 2**20:.0f}", *shares])
    print(table(["gradient of", "ours, ms", *(f"{form} / ours" for form in others)], times_of))
    print()
    print(table(["gradient of", "ours, MiB", *(f"ours / {form}" for form in others)], bytes_of))
    print(f"\nMedians over {options.processes} processes. {circumstances()}")


if __name__ == "__main__":
    main()
