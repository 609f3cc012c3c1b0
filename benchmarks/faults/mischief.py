"""R15-R18: trials that always fail, give no number, hang, take all memory, or end their process."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from benchmarks.faults import plain
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
"""By mischief: the cause that must be told, and the attempts that a trial may have."""
TRIALS = 8
DEADLINE = "90"
MUST = (
    "the sweep completes with code 3; bounded retries; the cause told; the others complete; nothing RUNNING"
)


def misbehaving_trials(dose: Dose) -> list[Row]:
    """Let about a third of a sweep's trials fail in one way, for each way."""
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
    told = dict(Counter(str(trial.cause).partition(":")[0] for trial in failed))
    tries = sorted({trial.attempts for trial in failed})
    complete = sum(trial.state == "COMPLETE" for trial in trials)
    tally.expect(code == 3, f"left {code}: {output[-300:]}")
    tally.expect([trial.key for trial in failed] == bad, f"{len(bad)} should have failed")
    tally.expect(set(told) == {cause}, f"the cause should be {cause}")
    tally.expect(tries == [attempts], f"{attempts} attempts are allowed")
    tally.expect(complete == TRIALS - len(bad), "others failed too")
    tally.expect(not (found := site.check()), found)
    tally.expect(not (found := disagreement(site)), found)
    seen = f"{len(failed)} FAILED ({told}) after {tries} attempts, {complete} complete, code {code}"
    ordinary = plain.NAN if mischief == "nan" else ""
    return tally.row(f"`{mischief}` in {len(bad)} of {TRIALS} trials", MUST, seen, ordinary)


def _installed(folder: Path) -> Path:
    """Lay the package of the unruly layer out as pip would."""
    about = folder / "unruly-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: unruly\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(POINTS)
    return folder
