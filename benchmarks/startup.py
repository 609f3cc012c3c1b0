"""Latency of the commands: from the start of a sweep to its first report, and of `status` and `list`.

    python -m benchmarks.startup [--times 3]

The sweep is that of `benchmarks.throughput`; a first run compiles its program. The first report is written to
the ledger after 50 steps, an evaluation and a checkpoint.
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.throughput import OPTIONS, ROOT, SPACE, arrays


class Folder:
    """Runs the service's commands in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "mlruns"
        written = "{" + ", ".join(f"{key}: {value}" for key, value in OPTIONS.items()) + "}"
        self.file = folder / "startup.yaml"
        self.file.write_text(SPACE.format(trials=1000, data=written))
        arrays(folder)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        places = {"SWEEP_ROOT": str(self.root), "SWEEP_DATA": str(self.folder), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "orchestrator.sweep", *arguments]
        pipe = subprocess.PIPE
        environment = {**os.environ, **places}
        return subprocess.Popen(command, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True)

    def reports(self) -> int:
        try:
            with sqlite3.connect(f"file:{self.root}/sweeps.db?mode=ro", uri=True) as ledger:
                return int(ledger.execute("select count(*) from report").fetchone()[0])
        except sqlite3.OperationalError:
            return 0

    def first_report(self) -> float:
        """Start a new sweep, stop it after its first report, and return the seconds until that report."""
        before, began = self.reports(), time.perf_counter()
        driver = self.start(str(self.file), "--new", "--quiet")
        while self.reports() == before:
            if driver.poll() is not None:
                sys.exit(driver.communicate()[0])
            time.sleep(0.02)
        seconds = time.perf_counter() - began
        driver.send_signal(signal.SIGINT)
        driver.communicate()
        return seconds

    def verb(self, *arguments: str) -> float:
        """Return the seconds that a subcommand takes."""
        began = time.perf_counter()
        process = self.start(*arguments)
        output, _ = process.communicate()
        if process.returncode:
            sys.exit(output)
        return time.perf_counter() - began


def main() -> None:
    """Measure each latency several times and print medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=3)
    times = parser.parse_args().times
    with tempfile.TemporaryDirectory() as place:
        folder = Folder(Path(place))
        cold = folder.first_report()
        measured = {
            "first report, nothing compiled": [cold],
            "first report, compiled before": [folder.first_report() for _ in range(times)],
            "`list`": [folder.verb("list") for _ in range(times)],
            "`status`": [folder.verb("status") for _ in range(times)],
        }
    print(f"{len(os.sched_getaffinity(0))} processors, load at the end {os.getloadavg()[0]:.1f}\n")
    print("| | median s | each |\n|---|---|---|")
    for name, seconds in measured.items():
        print(f"| {name} | {statistics.median(seconds):.2f} | {', '.join(f'{s:.2f}' for s in seconds)} |")


if __name__ == "__main__":
    main()
