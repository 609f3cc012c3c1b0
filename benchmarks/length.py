"""Time of the gradient of one RotRNN layer as the sequence length grows.

    python -m benchmarks.length [--processes 5] [--rounds 7]

D 128, N 256, H 32, batch 1.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from statistics import median

from benchmarks.layer_gradient import gradient
from benchmarks.timing import circumstances, in_processes, in_turns, table


def main() -> None:
    """Print one row per length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8192, 16_384])
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        cases = {str(length): gradient("ours", length, 1) for length in options.lengths}
        timed = in_turns({name: partial(f, *a) for name, (f, a) in cases.items()}, options.rounds)
        print(json.dumps(timed))
        return
    lengths = [str(length) for length in options.lengths]
    arguments = (f"--rounds={options.rounds}", "--lengths", *lengths)
    runs = in_processes("benchmarks.length", options.processes, *arguments)
    rows = []
    for length in lengths:
        scale = int(length) / options.lengths[0]
        ratios = [run[length] / run[lengths[0]] / scale for run in runs]
        time = 1000 * median(run[length] for run in runs)
        rows.append([length, f"{time:.1f}", f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"])
    print(table(["L", "ms", f"against {lengths[0]} in proportion: median (range)"], rows))
    print(f"\nMedians over {options.processes} processes. {circumstances()}")


if __name__ == "__main__":
    main()
