"""R12: any file that a resume reads is truncated, zeroed or flipped: found and named, or without effect."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.faults import plain
from benchmarks.faults.site import Site, kill, until
from benchmarks.faults.table import Dose, Row, Tally
from orchestrator.errors import Damaged
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.recovery import recover
from orchestrator.ledger.soundness import verify
from trainables import checkpoint
from trainables.errors import DamagedCheckpoint
from trainables.tasks import TASKS

HARMS = ("truncate", "zero", "flip")
OPTIONS = {"delay": 6, "examples": 400, "held_out": 40, "seed": 0}


def damaged_files(dose: Dose) -> list[Row]:
    """Damage one file a case, read everything as a resume does, and put it all back."""
    site, data = _killed(dose, "damage"), dose.folder / "shared" / "data"
    sound, kept = _read(site, data)[1], dose.folder / "sound"
    for folder in (site.root, data):
        shutil.copytree(folder, kept / folder.name)
    chance, outcomes, tally = random.Random(12), Counter[str](), Tally()
    files: Counter[str] = Counter()
    for case in range(dose.cases):
        path = chance.choice(sorted(_read_by_a_resume(site, data)))
        harm = HARMS[case % len(HARMS)]
        _harm(path, harm, chance)
        complaint, found = _read(site, data)
        outcome = "named" if complaint else "without effect"
        tally.expect(
            found == sound or bool(complaint), f"{harm} of {path.name} changed what is read, silently"
        )
        outcomes[outcome] += 1
        files[path.suffix or path.name] += 1
        for folder in (site.root, data):
            shutil.rmtree(folder)
            shutil.copytree(kept / folder.name, folder)
    seen = f"{dose.cases} cases over {dict(files)}: {dict(outcomes)}, {len(tally.wrong)} silent"
    must = "named, or nothing that is read differs; 0 silent, 0 wrong weights"
    return [tally.row("a file truncated, zeroed or flipped", must, seen, plain.DAMAGED)]


def damaged_and_resumed(dose: Dose) -> list[Row]:
    """Damage what matters most, one thing a driver, and let the same command go on."""
    still = Site(dose.folder, "damage-undisturbed").write()
    code, _ = still.finished()
    wanted, tally, told = still.outcome(), Tally(), []
    tally.expect(code == 0, f"the undisturbed sweep left {code}")
    for name, harm in (("arrays.npz", "flip"), ("manifest.json", "zero"), ("sweeps.db", "truncate")):
        site = _killed(dose, f"damage-{name}")
        path = max(site.root.rglob(name), key=lambda found: found.stat().st_mtime)
        _harm(path, harm, random.Random(name))
        code, output = site.finished()
        tally.expect(code == 0, f"{harm} of {name}: left {code}: {output[-300:]}")
        tally.expect(site.outcome() == wanted, f"{harm} of {name}: another outcome than undisturbed")
        tally.expect(not (found := site.check()), found)
        told.append(f"{harm} of {name}")
    seen = f"{', '.join(told)}: the same command finished with the undisturbed curves"
    return [tally.row("damaged after a kill, and run again", "the same outcome as undisturbed", seen)]


def _killed(dose: Dose, name: str) -> Site:
    """Return a site whose driver was killed in the middle."""
    site = Site(dose.folder, name).write()
    driver = site.drive()
    until(lambda: site.reports() >= 14, driver)
    kill(driver)
    site.left_running()
    return site


def _read_by_a_resume(site: Site, data: Path) -> Iterator[Path]:
    yield from site.root.glob("sweeps.db*")
    yield from site.root.glob("sweeps.backup/*")
    yield from site.root.glob("checkpoints/*/*/*/*")
    yield from (path for path in data.rglob("*") if path.suffix in (".npy", ".json"))


def _harm(path: Path, harm: str, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if not content:
        return
    place = chance.randrange(len(content))
    if harm == "truncate":
        del content[place:]
    elif harm == "zero":
        content[place : place + 512] = bytes(len(content[place : place + 512]))
    else:
        content[place] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def _read(site: Site, data: Path) -> tuple[list[str], Any]:
    """Read what a resume reads; return what it complained about, and what it went on with."""
    complaints: list[str] = []
    try:
        ledger, rows = _rows(site, complaints)
    except Damaged as damage:
        complaints.append(str(damage))
        recover(f"sqlite:///{site.root}/sweeps.db")
        ledger, rows = _rows(site, complaints)
    weights = {}
    for row in ledger.checkpoints(site.id):
        try:
            arrays, facts = checkpoint.load(Path(row.path))
            weights[row.path] = (facts["step"], {name: value.tobytes() for name, value in arrays.items()})
        except DamagedCheckpoint as damage:
            complaints.append(str(damage))
    ledger.close()
    said: list[str] = []
    loaded = TASKS["copy"].load(OPTIONS, data, lambda what, done, total: said.append(what))
    complaints += said
    train = loaded.train
    return complaints, (rows, weights, loaded.digest, train.inputs.tobytes(), train.targets.tobytes())


def _rows(site: Site, complaints: list[str]) -> tuple[Ledger, Any]:
    ledger = Ledger.open(f"sqlite:///{site.root}/sweeps.db")
    try:
        (sweep,) = ledger.sweeps()
        complaints += verify(ledger, sweep.id)
        mine = (ledger.trials, ledger.attempts, ledger.reports, ledger.checkpoints, ledger.readings)
        return ledger, (sweep, [read(sweep.id) for read in mine], ledger.pending(sweep.id, 100_000))
    except BaseException:
        ledger.close()
        raise
