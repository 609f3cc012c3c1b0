"""R12: damage any file that a resume reads (truncate, zero, flip): it is named, or has no effect."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.faults.site import Site, kill
from benchmarks.faults.table import Dose, Row, Tally
from orchestrator.errors import Damaged
from orchestrator.ledger.integrity import verify
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import CheckpointKind, CheckpointRecord, TrialRecord
from orchestrator.ledger.sweeps.writer import SweepWriter
from orchestrator.upkeep.recovery import recover
from tests.orchestrator.ledger.examples import create_sweep, event, sweep_record, trial_record, writer
from trainables import checkpoint
from trainables.errors import DamagedCheckpoint
from trainables.tasks import TASKS

HARMS = ("truncate", "zero", "flip")
SWEEP, TRIALS = "copy-0123abcd", 4
KINDS: tuple[CheckpointKind, ...] = ("best", "last")
OPTIONS = {"delay": 6, "examples": 400, "held_out": 40, "seed": 0}


def damaged_files(dose: Dose) -> list[Row]:
    """Damage one file per case, read everything that a resume reads, and restore the files."""
    root, data, kept = (dose.folder / "damage" / name for name in ("mlruns", "data", "kept"))
    _kill_mid_sweep(root)
    TASKS["copy"].load(OPTIONS, data)
    for folder in (root, data):
        shutil.copytree(folder, kept / folder.name)
    complaint, sound = _read(root, data)
    chance, tally = random.Random(12), Tally([f"before any damage: {line}" for line in complaint])
    outcomes, files = Counter[str](), Counter[str]()
    for case in range(dose.cases):
        path = chance.choice(sorted(_read_by_a_resume(root, data)))
        harm = HARMS[case % len(HARMS)]
        _harm(path, harm, chance)
        complaint, content = _read(root, data)
        outcome = "named" if complaint else "without effect"
        tally.expect(
            content == sound or bool(complaint),
            f"{harm} of {path.name} silently changed the data that is read",
        )
        outcomes[outcome] += 1
        files[path.suffix or path.name] += 1
        for folder in (root, data):
            shutil.rmtree(folder)
            shutil.copytree(kept / folder.name, folder)
    seen = f"{dose.cases} cases over {dict(files)}: {dict(outcomes)}, {len(tally.wrong)} silent"
    must = "named, or the data read is unchanged; 0 silent, 0 wrong weights"
    return [tally.row("a file truncated, zeroed or flipped", must, seen)]


def damaged_and_resumed(dose: Dose) -> list[Row]:
    """Damage one important file after each killed driver, and resume with the same command."""
    undisturbed = Site(dose.folder, "damage-undisturbed").write()
    code, _ = undisturbed.finished()
    wanted, tally, harms = undisturbed.outcome(), Tally(), []
    tally.expect(code == 0, f"the undisturbed sweep exited with {code}")
    for name, harm in (("arrays.npz", "flip"), ("manifest.json", "zero"), ("sweeps.db", "truncate")):
        site = _killed(dose, f"damage-{name}")
        path = max(site.root.rglob(name), key=lambda file: file.stat().st_mtime)
        _harm(path, harm, random.Random(name))
        code, output = site.finished()
        tally.expect(code == 0, f"{harm} of {name}: exit code {code}: {output[-300:]}")
        tally.expect(
            site.outcome() == wanted, f"{harm} of {name}: the outcome differs from the undisturbed one"
        )
        tally.expect(not (problems := site.check()), problems)
        harms.append(f"{harm} of {name}")
    seen = f"{', '.join(harms)}: the same command finished with the undisturbed curves"
    return [tally.row("damaged after a kill, and run again", "the same outcome as undisturbed", seen)]


def _killed(dose: Dose, name: str) -> Site:
    """Return a site whose driver was killed in the middle of the sweep."""
    site = Site(dose.folder, name).write()
    driver = site.drive()
    site.until_reports(14, driver)
    kill(driver)
    site.left_running()
    return site


def _kill_mid_sweep(root: Path) -> None:
    """Write a sweep in a child process that kills itself, so that SQLite's write-ahead log remains."""
    child = os.fork()
    if child == 0:
        ledger = Ledger.open(_url(root))
        create_sweep(ledger, sweep_record(id=SWEEP), [event(SWEEP, 1)])
        for number in range(TRIALS):
            _train(writer(ledger, SWEEP), root, trial_record(number, sweep_id=SWEEP), complete=number == 0)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def _train(write: SweepWriter, root: Path, trial: TrialRecord, *, complete: bool) -> None:
    write.add_trial(trial, [event(trial.key, 2)])
    attempt = write.start_attempt(trial.key)
    for step in (10, 20, 30) if complete else (10, 20):
        stem = root / "checkpoints" / SWEEP / trial.key / f"step-{step}"
        saved = checkpoint.save(stem, {"weights": np.full(200, float(step))}, {"step": step})
        rows = [
            CheckpointRecord(trial.key, step, kind, str(saved.folder), saved.digest, saved.bytes, {})
            for kind in KINDS
        ]
        write.record_report(attempt.id, step, {"val/accuracy": step / 30}, rows, [event(trial.key, step)])
    if complete:
        write.end_attempt(attempt.id, "ENDED", trial_state="COMPLETE", value=1.0, best_step=30)


def _url(root: Path) -> str:
    return f"sqlite:///{root / 'sweeps.db'}"


def _read_by_a_resume(root: Path, data: Path) -> Iterator[Path]:
    yield from root.glob("sweeps.db*")
    yield from root.glob("sweeps.backup/*")
    yield from root.glob("checkpoints/*/*/*/*")
    yield from (path for path in data.rglob("*") if path.suffix in (".npy", ".json"))


def _harm(path: Path, harm: str, chance: random.Random) -> None:
    path.write_bytes(harmed(path.read_bytes(), harm, chance))


def harmed(whole: bytes, harm: str, chance: random.Random) -> bytes:
    """Return the content of a file, damaged at one place.

    Args:
        whole: Content of the file.
        harm: One of `HARMS`.
        chance: Random source of the position.
    """
    content = bytearray(whole)
    if not content:
        return whole
    offset = chance.randrange(len(content))
    if harm == "truncate":
        del content[offset:]
    elif harm == "zero":
        content[offset : offset + 512] = bytes(len(content[offset : offset + 512]))
    else:
        content[offset] ^= 1 << chance.randrange(8)
    return bytes(content)


def _read(root: Path, data: Path) -> tuple[list[str], Any]:
    """Read what a resume reads; return the reported damage and the data that was used."""
    complaints: list[str] = []
    try:
        rows, checkpoints = _rows(root, complaints)
    except Damaged as damage:
        complaints.append(str(damage))
        recover(_url(root))
        rows, checkpoints = _rows(root, complaints)
    weights = {}
    for row in checkpoints:
        try:
            arrays, facts = checkpoint.load(Path(row.path), row.digest)
            weights[row.path] = (facts, arrays["weights"].tobytes())
        except DamagedCheckpoint as damage:
            complaints.append(str(damage))
    messages: list[str] = []
    loaded = TASKS["copy"].load(OPTIONS, data, lambda what, done, total: messages.append(what))
    train = loaded.train
    return complaints + messages, (
        rows,
        weights,
        loaded.digest,
        train.inputs.tobytes(),
        train.targets.tobytes(),
    )


def _rows(root: Path, complaints: list[str]) -> tuple[Any, list[CheckpointRecord]]:
    with closing(Ledger.open(_url(root))) as ledger:
        complaints += verify(ledger, SWEEP)
        kept = ledger.checkpoints(SWEEP)
        of_trials = [read(SWEEP) for read in (ledger.trials, ledger.attempts, ledger.reports)]
        return (ledger.sweeps(), of_trials, kept, ledger.pending(SWEEP, 100_000)), kept
