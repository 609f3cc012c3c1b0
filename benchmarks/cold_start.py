"""Cold start of a tiny sweep, beside bare Ray that starts and ends, and its processes as a picture.

    python -m benchmarks.cold_start [--times 5] [--empty] [--function] [--against TREE] [--picture FILE.svg]
    python -m benchmarks.cold_start --dry-run              one trial of the function, once

The network of `benchmarks.warm`: 8 trials of 400 steps, two at a time, from the command to its exit, with a
Ray of its own, the report, the evaluation on test and the delivery to MLflow. Bare Ray is a process that
starts Ray with as many processors, and ends it. They take turns in one run; `--against` runs the sweep of
another checkout too. The figures are seconds of wall and, summed over all processes that a run starts, of
CPU. Compiled programs are kept from one run to the next, unless `--empty` is given. The picture has a bar for
each process, darker where it uses more CPU, and the times that the ledger records. `--function` sweeps the
function of `benchmarks.warm` instead, which compiles nothing and has no test split.
"""

from __future__ import annotations

import argparse
import html
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.timing import line
from benchmarks.warm import FUNCTION, FUNCTION_SPACE, SPACE

ROOT = Path(__file__).parents[1]
BARE = "import ray; ray.init(num_cpus=2, include_dashboard=False); ray.shutdown()"
TICK = os.sysconf("SC_CLK_TCK")
SAMPLE_SECONDS = 0.1
MARK = "RAY_COLD_START_RUN"
"""Environment variable by which a run knows its processes; Ray's head keeps only those of such a name."""

MARKS = {
    "entered": "select created_at from sweep",
    "launched": "select min(started_at) from attempt",
    "first report": "select min(at) from report",
    "last report": "select max(at) from report",
    "tested": "select max(at) from evaluation",
    "report drawn": "select finished_at from sweep",
}
"""Times that the ledger records, by a query for each."""


@dataclass
class Process:
    """A process of a run.

    Attributes:
        name: What it runs.
        used: Seconds since the start of the run and its CPU seconds until then, one pair a sample.
    """

    name: str = ""
    used: list[tuple[float, float]] = field(default_factory=list)

    @property
    def cpu(self) -> float:
        """Seconds of CPU that were seen."""
        return self.used[-1][1]


@dataclass(frozen=True)
class Run:
    """A measured run.

    Attributes:
        wall: Seconds from its start to its exit.
        processes: Its processes by id.
        marks: Seconds from its start to what the ledger records.
    """

    wall: float
    processes: Mapping[int, Process]
    marks: Mapping[str, float]

    @property
    def cpu(self) -> float:
        """Seconds of CPU of all processes."""
        return sum(process.cpu for process in self.processes.values())


def measured(
    command: Sequence[str], variables: Mapping[str, str], ledger: Path | None = None, tree: Path = ROOT
) -> Run:
    """Run a command, and note ten times a second which of its processes use how much CPU.

    Args:
        command: The command.
        variables: Further environment variables.
        ledger: Database of the sweep that it runs, or None.
        tree: Checkout in which it runs.
    """
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    environment = {**os.environ, **variables, MARK: mark}
    known = {int(entry) for entry in os.listdir("/proc") if entry.isdigit()}  # noqa: PTH208
    processes: dict[int, Process] = {}
    began, at = time.monotonic(), time.time()
    with subprocess.Popen(command, env=environment, cwd=tree, stdout=subprocess.DEVNULL) as started:
        while started.poll() is None:
            _sample(mark, time.monotonic() - began, known, processes)
            time.sleep(SAMPLE_SECONDS)
        wall = time.monotonic() - began
    if started.returncode:
        sys.exit(f"{' '.join(command)} failed with code {started.returncode}")
    marks: dict[str, float] = {}
    if ledger is not None:
        with closing(sqlite3.connect(ledger)) as database:
            marks = {
                name: found[0] - at
                for name, query in MARKS.items()
                if (found := database.execute(query).fetchone())[0] is not None
            }
    return Run(wall, {pid: each for pid, each in processes.items() if each.used}, marks)


def _sample(mark: str, now: float, known: set[int], processes: dict[int, Process]) -> None:
    """Add a sample of every process of a run; `known` are those of which it is known that they are not."""
    for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):  # noqa: PTH208 - by name
        if pid in known:
            continue
        folder = Path("/proc", str(pid))
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if pid not in processes:
                if f"{MARK}={mark}".encode() not in (folder / "environ").read_bytes():
                    # A child that has not yet replaced its image has the environment of its parent.
                    known.add(pid)
                    continue
                processes[pid] = Process()
        except OSError:
            continue
        processes[pid].name = named(words) or processes[pid].name
        processes[pid].used.append((now, (int(fields[11]) + int(fields[12])) / TICK))


def named(words: Sequence[str]) -> str:
    """Return what the command line of a process runs.

    >>> named(["/usr/bin/python", "-m", "orchestrator.sweep", "tiny.yaml"])
    'orchestrator.sweep'
    >>> named(["ray::IDLE", "", ""])
    'ray::IDLE'
    """
    if "-m" in words:
        return words[words.index("-m") + 1]
    script = next((word for word in words[1:] if word.endswith(".py")), words[0])
    return Path(script.split(" ")[0]).name


def sweep(
    compilations: Path, folder: Path, tree: Path = ROOT, *, is_function: bool = False, trials: int = 8
) -> Run:
    """Run the tiny sweep of a checkout in an empty folder; compiled programs come from another."""
    folder.mkdir()
    file = folder / "tiny.yaml"
    file.write_text(FUNCTION_SPACE if is_function else SPACE)
    (folder / "train.py").write_text(FUNCTION)
    variables = {
        "PYTHONPATH": str(tree),
        "SWEEP_RUNTIME": str(folder / "run"),
        "SWEEP_RAY_LINGER": "0",
        "JAX_COMPILATION_CACHE_DIR": str(compilations),
        "JAX_PLATFORMS": "cpu",
    }
    places = ["--root", str(folder / "mlruns"), "--data", str(compilations.parent / "data")]
    options = [*places, "--here", "--set", f"budget.trials={trials}"]
    command = [sys.executable, "-m", "orchestrator.sweep", str(file), *options]
    return measured(command, variables, folder / "mlruns" / "sweeps.db", tree)


def bare(folder: Path) -> Run:
    """Start Ray and end it."""
    folder.mkdir()
    return measured([sys.executable, "-c", BARE], {"RAY_TMPDIR": str(folder), "RAY_AUTH_MODE": "disabled"})


def picture(run: Run, least: float = 0.3) -> str:
    """Return a run as SVG: a row for each process with at least `least` seconds of CPU."""
    shown = [each for each in run.processes.values() if each.cpu >= least]
    shown.sort(key=lambda each: each.used[0][0])
    left, wide, high, top = 190, 700, 18, 96
    height = top + high * len(shown) + 24

    def x(seconds: float) -> float:
        return left + wide * seconds / run.wall

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + wide + 60} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{left + wide + 60}" height="{height}" fill="white"/>',
    ]
    for row, process in enumerate(shown):
        y = top + high * row
        parts.append(
            f'<text x="{left - 6}" y="{y + 12}" text-anchor="end">{html.escape(process.name[:30])}</text>'
        )
        bucket = max(run.wall / 120, 2 * SAMPLE_SECONDS)
        begin, used = process.used[0][0], 0.0
        for now, cpu in process.used:
            if now - begin >= bucket or now == process.used[-1][0]:
                share = min(1.0, (cpu - used) / max(now - begin, SAMPLE_SECONDS))
                parts.append(
                    f'<rect x="{x(begin):.1f}" y="{y + 2}" width="{x(now) - x(begin):.1f}" '
                    f'height="{high - 4}" fill="#1f5fa8" fill-opacity="{0.12 + 0.88 * share:.2f}"/>'
                )
                begin, used = now, cpu
        parts.append(f'<text x="{x(process.used[-1][0]) + 4:.1f}" y="{y + 12}">{process.cpu:.1f}</text>')
    for row, (name, at) in enumerate(run.marks.items()):
        y = 14 + 12 * row
        parts.append(f'<line x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{y}" y2="{height - 20}" stroke="#c33"/>')
        parts.append(
            f'<text x="{x(at) - 4:.1f}" y="{y + 4}" text-anchor="end" fill="#c33">{name} {at:.1f}</text>'
        )
    step = max(1, round(run.wall / 10))
    for second in range(0, int(run.wall) + 1, step):
        parts.append(f'<text x="{x(second):.1f}" y="{height - 6}" text-anchor="middle">{second} s</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def spread(values: Sequence[float]) -> str:
    """Return the median and the range of some values."""
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure in turns, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--empty", action="store_true", help="empty the compiled programs before each run")
    parser.add_argument("--function", action="store_true", help="sweep a function instead of a network")
    parser.add_argument("--against", type=Path, help="another checkout, to compare with")
    parser.add_argument("--picture", type=Path, help="file for the timeline of the last run")
    parser.add_argument("--dry-run", action="store_true", help="the smallest run of everything")
    options = parser.parse_args(arguments)
    if options.dry_run:
        options.times, options.function = 1, True
    trials = 1 if options.dry_run else 8
    trees = {"tiny sweep": ROOT, **({str(options.against): options.against} if options.against else {})}
    runs: dict[str, list[Run]] = {"bare Ray": [], **{name: [] for name in trees}}
    with tempfile.TemporaryDirectory(prefix="cold-") as place:
        folder = Path(place)
        if not options.empty and not options.function:
            sweep(folder / "kept", folder / "first")
        for number in range(options.times):
            runs["bare Ray"].append(bare(folder / f"bare-{number}"))
            for index, (name, tree) in enumerate(trees.items()):
                kept = folder / (f"kept-{number}-{index}" if options.empty else "kept")
                runs[name].append(
                    sweep(
                        kept,
                        folder / f"{number}-{index}",
                        tree,
                        is_function=options.function,
                        trials=trials,
                    )
                )
            print(
                {name: f"{each[-1].wall:.1f} ({each[-1].cpu:.1f})" for name, each in runs.items()}, flush=True
            )
    print(f"\n{len(os.sched_getaffinity(0))} processors, load at the end {os.getloadavg()[0]:.1f}\n")
    print(line(["", *runs]) + "\n" + line(["---"] * (1 + len(runs))))
    print(line(["wall, s", *(spread([run.wall for run in each]) for each in runs.values())]))
    print(line(["CPU, s", *(spread([run.cpu for run in each]) for each in runs.values())]))
    for kind in ("wall", "cpu"):
        ratios = [
            [getattr(run, kind) / getattr(to, kind) for run, to in zip(each, runs["bare Ray"], strict=True)]
            for each in runs.values()
        ]
        print(line([f"{kind}, ratio to bare Ray", *map(spread, ratios)]))
    for mark in runs["tiny sweep"][-1].marks:
        print(line([mark, "", *(spread([run.marks[mark] for run in runs[name]]) for name in trees)]))
    if options.picture:
        options.picture.write_text(picture(runs["tiny sweep"][-1]), encoding="utf-8")


if __name__ == "__main__":
    main()
