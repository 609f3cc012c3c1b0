"""Layers that look at their input on a GPU: which `algorithm` computes a gradient fastest.

    python -m benchmarks.gpu_layers [--cases min_gru s6] [--lengths 2048 16384] [--rounds 5]
    python -m benchmarks.gpu_layers --dry-run        # tiny shapes, on any device; the times are meaningless

Gradients by the parameters and the input, in the sizes of `benchmarks.gated_layers`, batches of 32 (8 at L
16,384), beside the equations as printed (`benchmarks.printed_gated`): these are left out at L 16,384. "apart"
is the largest difference of gradients from those of `sequential`, relative to the largest value; products of
the layers' weights are in TF32 on a GPU. Needs this repository, jax, flax, optax and numpy.
"""

from __future__ import annotations

import argparse
from functools import partial

from benchmarks.gated_layers import SIZES, gradient
from benchmarks.gpu_recurrence import apart
from benchmarks.printed_gated import PRINTED
from benchmarks.timing import circumstances, in_turns, line, table

ALGORITHMS = {"delta": ("sequential", "chunked", "pallas"), "": ("sequential", "associative", "pallas")}
"""By the beginning of a layer's name."""


def main() -> None:
    """Print one table, each layer when it is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes")
    parser.add_argument("--cases", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--lengths", type=int, nargs="+", default=[2_048, 16_384])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(table(["L", "gradient of", "form", "ms", "times sequential", "apart"], []), flush=True)
    for length in (40,) if options.dry_run else options.lengths:
        for name in options.cases:
            for cells in rows(
                name, length, 1 if options.dry_run else 32 if length < 10_000 else 8, options.rounds
            ):
                print(line([f"{length:,}", name, *cells]), flush=True)
    print(f"\n{circumstances()}")


def rows(name: str, length: int, batch: int, rounds: int) -> list[list[str]]:
    """Return a row for each algorithm of a layer, and for each printed form at moderate lengths."""
    algorithms = next(names for start, names in ALGORITHMS.items() if name.startswith(start))
    graded = {key: gradient(name, "ours", length, batch, algorithm=key) for key in algorithms}
    if length < 10_000:
        layer = name.partition("/")[0]
        printed = [form for form, layers in PRINTED.items() if layer in layers]
        graded |= {form: gradient(name, form, length, batch) for form in printed}
    calls = {key: partial(function, *arguments) for key, (function, arguments) in graded.items()}
    reference = calls["sequential"]()
    errors = {key: apart(call(), reference) for key, call in calls.items()}
    taken = in_turns(calls, rounds)
    return [
        [key, f"{1000 * seconds:.2f}", f"{taken['sequential'] / seconds:.1f}", f"{errors[key]:.0e}"]
        for key, seconds in taken.items()
    ]


if __name__ == "__main__":
    main()
