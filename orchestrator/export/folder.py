"""Export of a trial to a self-contained folder: settings, code, versions and the curve."""

from __future__ import annotations

import json
import shlex
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator import provenance
from orchestrator.accounts import umask
from orchestrator.assignment import INITIAL_NORM, SIZE
from orchestrator.config import from_document
from orchestrator.errors import BadInput, counted
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import CheckpointRecord, SweepRecord, TrialRecord
from orchestrator.scripts.script_process import (
    CLIENT,
    FUNCTION,
    command_by_hand,
    facts_by_hand,
    variables_by_hand,
)
from orchestrator.training.process import worker_environment
from trainables import checkpoint
from trainables.sources import digest_of, files_of_reference, module_in
from trainables.trial import ProgramSettings, ScriptSettings, TrialSettings

_PACKAGE = Path(checkpoint.__file__).parent
_SOURCE = Path(__file__).resolve().parents[2]
_PINNED = ("jax", "jaxlib", "flax", "optax", "numpy")
_UNPINNED = ("pillow", "filelock")
"""Further packages that the code imports; a sweep does not record their versions."""

_PROGRAM = "program"
"""Name of the folder with the Python files of a user's program."""

_LOCK = "requirements/locked.txt"
_UNREPEATABLE = ("seconds/", "tokens_per_second", "test/", SIZE, INITIAL_NORM)
"""Prefixes of metrics that depend on the machine, or that training does not compute."""


def export(
    ledger: Ledger,
    trial: TrialRecord,
    folder: Path,
    facts: Mapping[str, Any],
    state: Mapping[str, np.ndarray],
) -> list[str]:
    """Write a trial of a network or a program to a new folder.

    Args:
        ledger: Ledger of the trial.
        trial: Trial to export.
        folder: Folder to create.
        facts: Facts of the trial's last checkpoint, such as its device and data; empty if there is none.
        state: Arrays of a program's best checkpoint, by the names of their paths; empty for a network.

    Returns:
        The guarantee of reproducibility, and warnings.

    Raises:
        BadInput: The folder exists, the trial has no reports, or its program is missing or outside its
            folder.
    """
    sweep = ledger.sweep(trial.sweep_id)
    assert sweep is not None, "a trial's sweep is in the ledger"
    document = _document(ledger, sweep, trial, facts)
    if not document["curve"]:
        raise BadInput(trial.key, "has no report to compare with", "", "`show` prints its state.")
    _check_new(folder)
    section = sweep.document.get("trainable")
    files = files_of_program(section["program"], Path(section["folder"])) if section else []
    (folder / "code").mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(_PACKAGE, folder / "code" / _PACKAGE.name, ignore=ignored)
    _write(folder / "trial.json", json.dumps(document, indent=1) + "\n")
    _write(folder / "search-space.yaml", str(sweep.facts.get("specification", "")))
    _write(folder / "run.sh", _script(document["environment"]))
    (folder / "run.sh").chmod(0o777 & ~umask())
    lock = provenance.file_at(_SOURCE, _commit(sweep), _LOCK)
    _write(folder / "requirements.txt", lock or _pins(sweep.facts.get("versions", {})))
    notes = _notes(sweep, trial, lock)
    if section:
        for name, file in files:
            (folder / _PROGRAM / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / _PROGRAM / name)
        notes += _notes_on_program(section["program"], Path(section["folder"]), sweep)
        np.savez(folder / "checkpoint.npz", allow_pickle=False, **dict(state))
    _write(folder / "README.md", _readme(sweep, trial, document["guarantee"], notes))
    return [document["guarantee"], *notes]


def _document(
    ledger: Ledger, sweep: SweepRecord, trial: TrialRecord, facts: Mapping[str, Any]
) -> dict[str, Any]:
    specification = from_document(sweep.document, str(sweep.facts.get("specification", "")))
    settings = specification.settings(trial.params, trial.seed, trial.total_steps)
    assert not isinstance(settings, ScriptSettings), "a function or a command is exported as files"
    if isinstance(settings, ProgramSettings):
        settings = replace(settings, folder=_PROGRAM)
    return {
        "trial": trial.key,
        "state": trial.state,
        "seed": trial.seed,
        "params": dict(trial.params),
        "settings": asdict(settings),
        "data": {"source": sweep.data_source, "digest": sweep.data_digest or facts.get("data")},
        "environment": worker_environment(specification.resources.gpu),
        "git_commit": sweep.facts.get("git_commit"),
        "versions": sweep.facts.get("versions"),
        "command": sweep.facts.get("command"),
        "stretches": facts.get("stretches", []),
        "guarantee": _guarantee(trial, settings, facts),
        "curve": {row.step: _repeatable(row.metrics) for row in ledger.trial_reports(trial.key)},
    }


def files_of_program(reference: str, source: Path) -> list[tuple[str, Path]]:
    """Return the Python files of a user's program by relative names; none for an installed package.

    Args:
        reference: `file.py:Name` or `package.module:Name`.
        source: Folder of the trainable.

    Raises:
        BadInput: The files are missing, or the program is outside the folder.
    """
    where, module = "trainable.program", reference.partition(":")[0]
    must = "must exist to be exported"
    if not module.endswith(".py") and not module_in(source, module):
        if find_spec(module.partition(".")[0]) is None:
            raise BadInput(where, must, f"no module {module}", "Install it, or move its files back.")
        return []
    if module.endswith(".py") and (Path(module).is_absolute() or ".." in Path(module).parts):
        must = f"must be a file in {source} to be exported"
        raise BadInput(where, must, module, "Copy it there, and train from that file.")
    files = files_of_reference(reference, source)
    if gone := [str(file) for _, file in files if not file.is_file()]:
        raise BadInput(where, must, f"no file {gone[0]}", "Move it back.")
    return files


def _notes_on_program(reference: str, source: Path, sweep: SweepRecord) -> list[str]:
    """Return warnings about the reproducibility of a user's program."""
    notes = ["requirements.txt lacks the packages that only the program imports."]
    if [one["digest"] for one in sweep.facts.get("code", ())] != [digest_of(reference, source)]:
        notes.append(f"The code in {source} has changed since the sweep began.")
    module = reference.partition(":")[0]
    if not module.endswith(".py") and not module_in(source, module):
        notes.append(f"The program is {reference}, of a package that has to be installed.")
    return notes


def _guarantee(
    trial: TrialRecord, settings: TrialSettings | ProgramSettings, facts: Mapping[str, Any]
) -> str:
    """Return the guarantee, or a note if the trial has continued from the state of another trial."""
    segments = trial.system_attrs.get("segments", ())
    if not segments and trial.extensions:
        return (
            f"Went on at step {trial.extensions[0].step} with a schedule of more steps: trained again "
            "from its own seed with one schedule, it has another curve."
        )
    if not segments:
        return guarantee(settings, facts)
    first = segments[0]
    return (
        f"Went on at step {first['step']} from the state of {first['donor']} (population based training): "
        "trained again from its own seed and with its last hyperparameters, it has another curve."
    )


def guarantee(settings: TrialSettings | ProgramSettings, facts: Mapping[str, Any]) -> str:
    """Describe when a repeated trial has identical values; `facts` are those of its last checkpoint."""
    device, sizes = facts.get("device"), [size for part in facts.get("stretches", ()) for _, _, size in part]
    bits, of_package = settings.training.reproducible == "bits", isinstance(settings, TrialSettings)
    separate = bits or (device == "cpu" and of_package)
    if device is None or not (sizes or separate):
        return "The programs that trained it are not recorded, so the last digits may differ."
    if len(kinds := facts.get("devices", ())) > 1:
        names = ", then on a ".join(kind.upper() for kind in kinds)
        return f"Trained on a {names}: on one device, its values are the same up to rounding."
    same = f"the same versions on the same model of {device.upper()} give the same digits"
    if separate:
        how = "with `reproducible: bits`" if bits else "on a CPU"
        return f"Trained {how}, by a program of its own: {same}, regardless of other trials on the device."
    slots = counted(max(sizes), "slot")
    how = f"Trained on a {device.upper()} by programs that advanced up to {slots} at once: "
    if device == "cpu":
        return (
            f"{how}run.sh repeats their recorded sizes, and {same}; with other sizes the last digits differ."
        )
    return (
        f"{how}run.sh repeats their recorded sizes, and {same}, unless XLA measures and chooses other "
        "kernels, or kernels without a fixed order of additions change the last ones; "
        "`training.reproducible: bits` does without both."
    )


def _repeatable(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if not name.startswith(_UNREPEATABLE)}


def _script(environment: Mapping[str, str]) -> str:
    return "\n".join(
        [
            "#!/bin/sh",
            "# Train the trial again and compare its curve: run.sh --data FOLDER-OF-THE-DATA-SETS",
            'here=$(cd "$(dirname "$0")" && pwd) || exit',
            *(f"export {name}='{value}'" for name, value in environment.items()),
            "# -P: use the code beside this file, not that of the working directory",
            'export PYTHONPATH="$here/code"',
            'exec "${PYTHON:-python}" -P -m trainables.replay "$here/trial.json" "$@"',
            "",
        ]
    )


def _pins(versions: Mapping[str, str]) -> str:
    pinned = (f"{name}=={versions[name]}" for name in _PINNED if name in versions)
    return "\n".join([*pinned, *_UNPINNED, ""])


def _commit(sweep: SweepRecord) -> str:
    return str(sweep.facts.get("git_commit", "")).partition("+")[0]


def _notes(sweep: SweepRecord, trial: TrialRecord, lock: str | None) -> list[str]:
    """Return warnings about reproducibility, one sentence each."""
    notes = []
    then, now = str(sweep.facts.get("git_commit", "unknown")), provenance.git_commit(_SOURCE)
    if then != now or now.endswith("+changes") or now == "unknown":
        notes.append(f"The code is that of {now}; the sweep ran {then}.")
    if lock is None:
        pinned = "requirements.txt pins the packages that affect results"
        notes.append(f"The lock file of that commit is not available: {pinned}.")
    if trial.attempts > 1:
        notes.append(f"The trial took {trial.attempts} attempts; each resumed from the checkpoint before it.")
    return notes


def _readme(sweep: SweepRecord, trial: TrialRecord, guarantee: str, notes: list[str]) -> str:
    python = sweep.facts.get("versions", {}).get("python", "3.11")
    lines = [
        f"# {trial.key}",
        f"A {trial.role} trial of `{sweep.id}` ({trial.state}, step {trial.step} of {trial.total_steps}).",
        "```sh\n"
        f"python -m venv .venv && . .venv/bin/activate     # Python {python}\n"
        "pip install -r requirements.txt                  # with a GPU: also JAX for it, see trial.json\n"
        "./run.sh --data FOLDER-OF-THE-DATA-SETS\n"
        "```",
        "This trains the trial from its seed and compares every reported value with the recorded one; the "
        f"exit code is 0 if all are equal to the last digit. {guarantee} On other hardware the curve is the "
        "same up to rounding errors, which grow with the steps.",
        f"Data: {sweep.data_source}; trial.json has the SHA-256 of the encoded arrays.",
        "| file | content |\n| --- | --- |\n"
        "| trial.json | settings, seed, versions, commit, command, environment, programs, recorded curve |\n"
        "| search-space.yaml | the search-space file of the sweep |\n"
        "| requirements.txt | the versions of the packages |\n"
        "| code/ | the package that trains |\n"
        f"{_ROWS_OF_PROGRAM if 'trainable' in sweep.document else ''}"
        "| run.sh | sets XLA's environment, trains, compares |",
        *notes,
    ]
    return "\n\n".join(lines) + "\n"


_ROWS_OF_PROGRAM = (
    f"| {_PROGRAM}/ | the Python files of the program |\n| checkpoint.npz | the state of its best step |\n"
)


def _write(file: Path, content: str) -> None:
    file.write_text(content, encoding="utf-8")


def export_saved(
    trial: TrialRecord,
    saved: CheckpointRecord,
    kept: Path,
    folder: Path,
    code: Path | None = None,
    settings: ScriptSettings | None = None,
) -> None:
    """Write the files of a script's checkpoint to `checkpoint/` of a new folder, and `trial.json` beside it.

    With the archive of its code, `run.sh` trains the trial again from it.

    Args:
        trial: Trial of the checkpoint.
        saved: Record of the checkpoint.
        kept: Folder of the checkpoint.
        folder: Folder to create.
        code: Archive of the code that the trial ran, or None if there is none.
        settings: Settings of the trial, with `code`.

    Raises:
        BadInput: The folder exists, or the script has saved no files.
        DamagedCheckpoint: A file of the checkpoint was changed, or belongs to another trial.
    """
    _check_new(folder)
    facts = checkpoint.facts_of(kept, saved.digest)
    checkpoint.check_trial(kept, facts, trial.key)
    if not facts["resumable"] and code is None:
        must, remedy = (
            "has no files to export",
            "Report a checkpoint: trial.report(..., checkpoint=folder).",
        )
        raise BadInput(trial.key, must, "reports without a checkpoint", remedy)
    if facts["resumable"]:
        checkpoint.extract(kept, saved.digest, folder / "checkpoint")
    known = {"trial": trial.key, "params": dict(trial.params), "seed": trial.seed}
    document = {**known, "step": facts["step"], "metrics": facts["metrics"]}
    folder.mkdir(parents=True, exist_ok=True)  # a checkpoint may be an empty folder
    _write(folder / "trial.json", json.dumps(document, indent=1) + "\n")
    if code is not None and settings is not None:
        _write_code(code, settings, folder)


def _write_code(archive: Path, settings: ScriptSettings, folder: Path) -> None:
    """Write the code of a script, the client that it imports, and `run.sh`, which runs the trial by hand."""
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder)
    shutil.copytree(CLIENT, folder / "client", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(FUNCTION, folder / FUNCTION.name)
    params = dict(settings.params)
    _write(folder / "params.json", json.dumps(params, indent=1) + "\n")
    _write(folder / "sweep-trial.json", json.dumps(facts_by_hand(settings), indent=1) + "\n")
    _write(folder / "run.sh", _script_by_hand(settings))
    (folder / "run.sh").chmod(0o777 & ~umask())


def _script_by_hand(settings: ScriptSettings) -> str:
    if settings.function is not None:
        words = f'-P "$here/{FUNCTION.name}" {shlex.quote(settings.function)} "$here/code"'
        line = f'exec "${{PYTHON:-python}}" {words}'
    else:
        program, *others = command_by_hand(settings)
        is_python = Path(program).name.startswith("python")
        first = '"${PYTHON:-python}"' if is_python else shlex.quote(program)
        line = f"exec {first} {shlex.join(others)}"
    return "\n".join(
        [
            "#!/bin/sh",
            "# Run the trial again without a sweep: it prints its reports. It needs packages.txt.",
            'here=$(cd "$(dirname "$0")" && pwd) || exit',
            *(f"export {name}={shlex.quote(value)}" for name, value in variables_by_hand(settings).items()),
            'export SWEEP_TRIAL="$here/sweep-trial.json" SWEEP_PARAMS="$here/params.json"',
            'export PYTHONPATH="$here/client${PYTHONPATH:+:$PYTHONPATH}"',
            'cd "$here/code" || exit',
            line,
            "",
        ]
    )


def _check_new(folder: Path) -> None:
    if folder.exists():
        raise BadInput(str(folder), "already exists", "", "Name another with --to.")
