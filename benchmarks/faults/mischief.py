"""R15-R18: trials that always fail, report NaN, hang, exhaust memory, or exit their process."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from benchmarks.faults.site import PATIENCE, Site, disagreement
from benchmarks.faults.table import Dose, Row, Tally
from tests.end_to_end.commands import finish

POINTS = """[trainables.layers]
unruly = benchmarks.faults.unruly:Unruly
"""
CAUSES = {
    "raise": ("error", 2),
    "nan": ("non-finite", 1),
    "hang": ("hung", 2),
    "memory": ("out of memory", 3),
    "exit": ("worker lost", 4),
}
"""For each kind of failure: the cause that must be recorded, and the number of attempts per trial."""
TRIALS = 8
DEADLINE = "90"
MUST = (
    "the sweep completes with code 3; bounded retries; cause recorded; the others complete; nothing RUNNING"
)


def misbehaving_trials(dose: Dose) -> list[Row]:
    """Run one sweep per kind of failure; about a third of its trials fail."""
    package = _installed(dose.folder / "unruly")
    return [_misbehaving(dose, mischief, package) for mischief in CAUSES]


def _misbehaving(dose: Dose, mischief: str, package: Path) -> Row:
    cause, attempts = CAUSES[mischief]
    search = f"  mischief: {{choice: [none, nothing, {mischief}]}}\n"
    site = Site(dose.folder, f"mischief-{mischief}").write(layer="unruly", trials=TRIALS, search=search)
    path = os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])
    code, output = finish(site.drive("--deadline", DEADLINE, PYTHONPATH=path), 2 * PATIENCE)
    trials, tally = site.trials(), Tally()
    failed = [trial for trial in trials if trial.state == "FAILED"]
    bad = [trial.key for trial in trials if trial.params["mischief"] == mischief]
    causes = dict(Counter(str(trial.cause).partition(":")[0] for trial in failed))
    tries = sorted({trial.attempts for trial in failed})
    complete = sum(trial.state == "COMPLETE" for trial in trials)
    tally.expect(code == 3, f"exit code {code}: {output[-300:]}")
    tally.expect([trial.key for trial in failed] == bad, f"{len(bad)} should have failed")
    tally.expect(set(causes) == {cause}, f"the cause should be {cause}")
    tally.expect(tries == [attempts], f"each should have had {attempts} attempts")
    tally.expect(complete == TRIALS - len(bad), "other trials failed too")
    tally.expect(not (problems := site.check()), problems)
    tally.expect(not (differences := disagreement(site)), differences)
    seen = f"{len(failed)} FAILED ({causes}) after {tries} attempts, {complete} complete, code {code}"
    return tally.row(f"`{mischief}` in {len(bad)} of {TRIALS} trials", MUST, seen)


def _installed(folder: Path) -> Path:
    """Write the metadata that pip would install for the package of the unruly layer."""
    about = folder / "unruly-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: unruly\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(POINTS)
    return folder
