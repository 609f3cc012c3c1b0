"""A trial as a folder from which another machine reproduces it: settings, code, versions and the curve."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator import provenance
from orchestrator.assignment import SIZE
from orchestrator.config import from_document
from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import SweepRecord, TrialRecord
from orchestrator.training.process import worker_environment
from trainables import checkpoint

_PACKAGE = Path(checkpoint.__file__).parent
_SOURCE = Path(__file__).resolve().parents[2]
_PINNED = ("jax", "jaxlib", "flax", "optax", "numpy")
_UNPINNED = ("pillow", "filelock")
"""Further packages that the code imports; a sweep does not record their versions."""

_LOCK = "requirements/locked.txt"
_UNREPEATABLE = ("seconds/", "tokens_per_second", "test/", SIZE)
"""Prefixes of metrics that depend on the machine, or that training does not compute."""


def export(ledger: Ledger, trial: TrialRecord, folder: Path, facts: Mapping[str, Any]) -> list[str]:
    """Write a trial to a new folder; return sentences on what may prevent the same curve.

    Args:
        ledger: of the trial.
        trial: to export.
        folder: to create.
        facts: of the trial's last checkpoint: on which device and by which programs it was trained; empty if
            there is none.

    Raises:
        BadInput: the folder exists, or the trial has reported nothing.
    """
    sweep = ledger.sweep(trial.sweep_id)
    assert sweep is not None, "a trial's sweep is in the ledger"
    document = _document(ledger, sweep, trial, facts)
    if not document["curve"]:
        raise BadInput(
            trial.key, "must have reported something to compare with", "no report", "`show` prints its state."
        )
    if folder.exists():
        raise BadInput(str(folder), "must not exist", "an existing folder", "Name another with --to.")
    (folder / "code").mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(_PACKAGE, folder / "code" / _PACKAGE.name, ignore=ignored)
    _write(folder / "trial.json", json.dumps(document, indent=1) + "\n")
    _write(folder / "search-space.yaml", str(sweep.facts.get("specification", "")))
    _write(folder / "run.sh", _script(document["environment"]))
    (folder / "run.sh").chmod(0o755)
    lock = provenance.file_at(_SOURCE, _commit(sweep), _LOCK)
    _write(folder / "requirements.txt", lock or _pins(sweep.facts.get("versions", {})))
    notes = _notes(sweep, trial, lock)
    _write(folder / "README.md", _readme(sweep, trial, document["guarantee"], notes))
    return notes


def _document(
    ledger: Ledger, sweep: SweepRecord, trial: TrialRecord, facts: Mapping[str, Any]
) -> dict[str, Any]:
    specification = from_document(sweep.document, str(sweep.facts.get("specification", "")))
    settings = specification.settings(trial.params, trial.seed)
    return {
        "trial": trial.key,
        "state": trial.state,
        "seed": trial.seed,
        "params": dict(trial.params),
        "settings": asdict(settings),
        "data": {"source": sweep.data_source, "digest": sweep.data_digest},
        "environment": worker_environment(specification.resources.gpu),
        "git_commit": sweep.facts.get("git_commit"),
        "versions": sweep.facts.get("versions"),
        "command": sweep.facts.get("command"),
        "stretches": facts.get("stretches", []),
        "guarantee": guarantee(facts.get("device"), bits=settings.training.reproducible == "bits"),
        "curve": {row.step: _repeatable(row.metrics) for row in ledger.trial_reports(trial.key)},
    }


def guarantee(device: str | None, *, bits: bool) -> str:
    """Return a sentence on when a trial that is trained again has the same values to the last digit.

    Args:
        device: kind of device that trained it, or None if that is not recorded.
        bits: whether its settings ask for reproducible bits.
    """
    if device is None:
        return "By which programs it was trained is not recorded: the last digits may differ."
    same = f"the same versions on the same model of {device.upper()} give the same digits"
    if device == "cpu":
        return f"Trained on a CPU: {same}, whatever else ran beside it."
    if bits:
        return f"Trained with `reproducible: bits`: {same}, whatever else shared the device."
    return (
        f"Trained on a {device.upper()} that other trials may have shared: it is trained by programs of the "
        "recorded sizes, and only kernels without a fixed order of additions may change the last digits; "
        "`training.reproducible: bits` does without them."
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
    """Return what may prevent the same curve, one sentence each."""
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
        f"Data: {sweep.data_source}; SHA-256 of the encoded arrays `{sweep.data_digest}`.",
        "| file | content |\n| --- | --- |\n"
        "| trial.json | settings, seed, versions, commit, command, environment, programs, recorded curve |\n"
        "| search-space.yaml | the search-space file of the sweep |\n"
        "| requirements.txt | the versions of the packages |\n"
        "| code/ | the package that trains |\n"
        "| run.sh | sets XLA's environment, trains, compares |",
        *notes,
    ]
    return "\n\n".join(lines) + "\n"


def _write(file: Path, content: str) -> None:
    file.write_text(content, encoding="utf-8")
