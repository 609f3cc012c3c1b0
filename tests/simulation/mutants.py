"""Show that the simulation can fail: apply each patch of `mutants/` to a copy, and find a seed that fails.

`python -m tests.simulation.mutants [NAME ...]` prints the first failing seed of each patch, which
reintroduces a defect that was repaired, or plants one.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

from tests.simulation.runs import NAMES
from tests.simulation.sizes import SIZES

ROOT = Path(__file__).parents[2]
PATCHES = Path(__file__).with_name("mutants")
COPIED = ("orchestrator", "trainables", "tests", "pyproject.toml")


def size_of(patch: Path) -> str | None:
    """Return the size of the runs that must notice a patch, which its name begins with; None for any size."""
    kind = patch.stem.partition("-")[0]
    return kind if kind in NAMES else None


def first_failing_seed(patch: Path, size: str, count: int) -> str:
    """Return the line about the first failing seed of a patched copy, or an empty text if none fails.

    Raises:
        RuntimeError: The simulation itself failed, or the seed fails without the patch too.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        copy.mkdir()
        for name in COPIED:
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)
        subprocess.run(["git", "apply", str(patch)], cwd=copy, check=True)
        run = [sys.executable, "-m", "tests.simulation", "0", "--count", str(count), "--until-failure"]
        run += ["--size", size, "--processes", "1"]  # the processors are shared by the patches
        # Without PYTHONPATH, which would find the modules that are not patched.
        bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        ended = subprocess.run(run, cwd=copy, env=bare, capture_output=True, text=True, check=False)
    if not re.search(r"^\d+ seeds, \d+ failed", ended.stdout, re.MULTILINE):
        raise RuntimeError(f"{patch.stem}: the simulation ended with {ended.returncode}:\n{ended.stderr}")
    failure = re.search(r"^seed (\d+): (?!known).*$", ended.stdout, re.MULTILINE)
    if failure is None:
        return ""
    alone = [sys.executable, "-m", "tests.simulation", failure[1], "--size", size]
    if subprocess.run(alone, cwd=ROOT, env=bare, capture_output=True, check=False).returncode:
        raise RuntimeError(f"{patch.stem}: seed {failure[1]} must pass without the patch, and it fails")
    return failure.group()


def main() -> int:
    """Print a line for each patch; return 1 if one is not noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants")
    parser.add_argument("names", nargs="*", help="names of patches; by default all")
    parser.add_argument("--count", type=int, default=5000, help="most seeds to try")
    parser.add_argument("--size", choices=SIZES, default="short", help="of the sweeps")
    options = parser.parse_args()
    patches = [
        path for path in sorted(PATCHES.glob("*.patch")) if not options.names or path.stem in options.names
    ]
    missed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        sizes = [size_of(patch) or options.size for patch in patches]
        lines = pool.map(first_failing_seed, patches, sizes, repeat(options.count))
        for patch, line in zip(patches, lines, strict=True):
            missed += not line
            print(f"{patch.stem}: {line or f'not noticed by {options.count} seeds'}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
