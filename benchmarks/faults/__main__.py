"""Run fault scenarios by name and print a table of the results."""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.faults.table import Dose, Row, Scenario, Tally, markdown
from tests.shared_ray import variables_of

SCENARIOS = {
    "kills": "kills:killed_drivers",
    "asha": "kills:killed_with_asha",
    "workers": "workers:killed_workers",
    "nodes": "workers:killed_nodes",
    "hosts": "hosts:lost_and_cut_hosts",
    "mlflow": "tracking:unreliable_server",
    "mlflow-gone": "tracking:no_server",
    "locked": "stores:locked_database",
    "postgres": "stores:restarted_server",
    "disk": "stores:full_disk",
    "damage": "damage:damaged_files",
    "damaged-resume": "damage:damaged_and_resumed",
    "writes": "writes:failing_writes",
    "power": "power:power_failures",
    "signals": "endings:signals",
    "moments": "moments:moments",
    "service-moments": "service:killed_at_moments",
    "service-ledger": "service:ledger_away",
    "pauses": "pauses:pauses",
    "rivals": "rivals:rivals",
    "impossible": "endings:impossible_resources",
    "clock": "endings:moved_clock",
    "five": "kills:five_drivers",
    "mischief": "mischief:misbehaving_trials",
    "soak": "soak:soak",
}
"""Module and function of each scenario, by name; `Dose` sets how much of each is run."""

SIZES = tuple(name for name in Dose.__dataclass_fields__ if name != "folder")
"""Options of the command line, which are fields of `Dose`."""


def main() -> int:
    """Run the scenarios named on the command line; return 1 if any expectation failed."""
    arguments = _arguments()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    with (
        tempfile.TemporaryDirectory(prefix="faults-") as folder,
        tempfile.TemporaryDirectory(prefix="ray-") as runtime,
        variables_of(Path(runtime)) as variables,
    ):
        os.environ.update(variables)  # the Ray of the user is left alone
        dose = _dose(Path(folder), arguments)
        rows = [row for name in arguments.names or SCENARIOS for row in _run(name, dose)]
    print(f"\n{markdown(rows)}\n\nCommit {_commit()}, {os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}.")
    return 0 if all(row.holds for row in rows) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"scenarios to run (default: all): {', '.join(SCENARIOS)}"
    )
    for name in SIZES:
        default = Dose.__dataclass_fields__[name].default
        parser.add_argument(
            f"--{name}",
            type=type(default),
            default=default,
            help=f"size of the faults (default: {default})",
        )
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(SCENARIOS):
        parser.error(f"no scenario {', '.join(sorted(unknown))}")
    return arguments


def _dose(folder: Path, arguments: argparse.Namespace) -> Dose:
    return replace(Dose(folder), **{name: getattr(arguments, name) for name in SIZES})


def _run(name: str, dose: Dose) -> list[Row]:
    """Run one scenario. If it raises, return a failed row, so that the remaining scenarios still run."""
    module, function = SCENARIOS[name].split(":")
    began = time.monotonic()
    try:
        scenario: Scenario = getattr(importlib.import_module(f"benchmarks.faults.{module}"), function)
        rows = scenario(dose)
    except Exception as error:  # noqa: BLE001 - any failure becomes a row of the table
        rows = [
            Tally([f"{type(error).__name__}: {error}"]).row(name, "the scenario runs", "the scenario raised")
        ]
    for row in rows:
        verdict = "holds" if row.holds else "DOES NOT HOLD"
        print(f"{name} ({time.monotonic() - began:.0f} s): {verdict}: {row.seen}")
    return rows


def _commit() -> str:
    return subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
