"""Peak memory of one RotRNN layer's gradient against the form printed in the paper.

    python -m benchmarks.gradient_memory [--length 16384]

D 128, N 256, H 32, batch 1. Two measures: XLA's memory analysis of the compiled gradient (arguments, results
and temporaries), and the growth of the peak resident set of a dedicated process from before the compilation
to after the first call.
"""

from __future__ import annotations

import argparse
import json
import resource

import jax

from benchmarks.layer_gradient import IMPLEMENTATIONS, gradient
from benchmarks.timing import circumstances, in_processes, table


def resident() -> int:
    """Return the peak resident set of this process so far, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def bytes_of(implementation: str, length: int) -> dict[str, int]:
    """Return both measures of one implementation, in bytes."""
    function, arguments = gradient(implementation, length, 1)
    jax.block_until_ready(arguments)
    before = resident()
    compiled = function.lower(*arguments).compile()
    jax.block_until_ready(compiled(*arguments))
    analysis = compiled.memory_analysis()
    parts = ("argument", "output", "temp")
    return {
        "compiled": sum(getattr(analysis, f"{part}_size_in_bytes") for part in parts),
        "resident": resident() - before,
    }


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--length", type=int, default=16_384)
    parser.add_argument("--implementation", choices=tuple(IMPLEMENTATIONS), help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(bytes_of(options.implementation, options.length)))
        return
    runs = {
        implementation: in_processes(
            "benchmarks.gradient_memory",
            1,
            f"--implementation={implementation}",
            f"--length={options.length}",
        )[0]
        for implementation in IMPLEMENTATIONS
    }
    rows = [
        [
            name,
            *(f"{runs[implementation][key] / 2**20:.0f}" for implementation in ("printed", "ours")),
            f"{runs['ours'][key] / runs['printed'][key]:.2f}",
        ]
        for name, key in (("XLA's memory analysis", "compiled"), ("growth of the resident set", "resident"))
    ]
    print(table(["peak memory of the gradient", "printed form, MiB", "ours, MiB", "ours / printed"], rows))
    print(f"\nL {options.length}, batch 1. {circumstances()}")


if __name__ == "__main__":
    main()
