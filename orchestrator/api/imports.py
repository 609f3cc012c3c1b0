"""Search spaces of other tools, found by what a file, a folder or a URL contains."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config.imports.hydra_sweep import hydra_draft, is_hydra_sweep, is_part
from orchestrator.config.imports.optuna_study import optuna_draft
from orchestrator.config.imports.ray_results import RayTrial, metrics_of, ray_draft
from orchestrator.config.imports.search_draft import SearchDraft, csv_of
from orchestrator.config.imports.wandb_sweep import is_wandb_sweep, wandb_draft
from orchestrator.config.resolve import check_name
from orchestrator.config.yaml_reader import read_document
from orchestrator.errors import BadInput, counted
from orchestrator.process_secrets import redacted
from orchestrator.study.stored_studies import is_journal, is_sqlite, read_study, url_of
from trainables.sources import content_of

_REMEDY = "Name a sweep file of W&B, a configuration of Hydra, a storage of Optuna or results of Ray Tune."
_OF_HYDRA = "a configuration of Hydra"
_LARGEST_CONFIG = 256_000
_LARGEST_RESULTS = 64 << 20
_LARGEST_FOLDER = 512 << 20
_MOST_TRIALS = 10_000


@dataclass(frozen=True)
class Imported:
    """The result of an import.

    Attributes:
        text: Text of the search-space file.
        notes: Lines about parts that could not be translated, and about guesses.
        known: Text of a CSV file of known results, or '' without any.
        rows: Number of known results.
    """

    text: str
    notes: tuple[str, ...] = ()
    known: str = ""
    rows: int = 0


def imported(
    source: str,
    overrides: Sequence[str] = (),
    *,
    study: str | None = None,
    objective: Mapping[str, Any] | None = None,
    known: str | None = None,
) -> Imported:
    """Return the search-space file of a file, a folder or a storage of another tool. No code of it is run.

    Args:
        source: Path of a W&B or Hydra YAML file, an Optuna storage or a folder with Ray Tune results, or URL
            of an Optuna storage.
        overrides: Overrides of Hydra's command line.
        study: Name of the study in a storage that has several.
        objective: Section `objective` for results that do not name their metric.
        known: Name of the CSV file to which known results will be written, or None for none.

    Raises:
        BadInput: The source cannot be read, is of no known kind, or has nothing that can be searched.
    """
    path = Path(source)
    kind = _kind_of(source, path)
    _check_options(kind, overrides, study, objective)
    if kind == "ray":
        return _imported(ray_draft(list(_ray_trials(path)), str(path), objective, known))
    if kind == "optuna":
        found = read_study(source, study)
        url = url_of(source)
        address = known if url is None else f"optuna://{url}#{found.name}"
        draft = optuna_draft(found, redacted(source), objective, address)
        if url is None:
            return _imported(draft)
        drawn = {name for trial in found.trials for name in trial.entries}
        if drawn.issuperset(draft.sections["search"]):
            return _imported(draft, is_written=False)
        # The storage has other names than the file, so its trials are written under those of the file.
        return _imported(optuna_draft(found, redacted(source), objective, known))
    root, text = read_document(path)
    if is_wandb_sweep(root):
        if overrides:
            raise _misplaced("OVERRIDE", _OF_HYDRA)
        return _imported(wandb_draft(root, path.name))
    if overrides or is_hydra_sweep(root):
        file = source if path.parent.name else str(path.absolute())
        return _imported(hydra_draft(root, overrides, file, part=is_part(text)))
    must = "must have `parameters`, as a sweep of W&B, or `hydra.sweeper`, as a configuration of Hydra"
    raise BadInput(source, must, root.shown(), "Give overrides such as 'lr=interval(0.001, 0.1)' for Hydra.")


def checked_output(output: Path) -> Path:
    """Check the name of a search-space file to be written, and return the CSV file of its known results.

    Raises:
        BadInput: The name cannot be that of a sweep, or one of the files exists.
    """
    check_name(output.stem, "--output", "the file's name", "Choose another: it names the sweep.")
    known = output.with_name(f"{output.stem}-known.csv")
    for file in (output, known):
        if file.exists():
            raise BadInput(str(file), "already exists", "", "Choose another name, or move the file away.")
    return known


def _imported(draft: SearchDraft, *, is_written: bool = True) -> Imported:
    rows = max(0, len(draft.results) - 1) if is_written else 0
    return Imported(draft.text(), draft.notes(), csv_of(draft.results) if rows else "", rows)


def _check_options(
    kind: str, overrides: Sequence[str], study: str | None, objective: Mapping[str, Any] | None
) -> None:
    """Check that options suit the kind of the source.

    Raises:
        BadInput: An option has no effect on this kind of source.
    """
    if overrides and kind != "yaml":
        raise _misplaced("OVERRIDE", _OF_HYDRA)
    if study is not None and kind != "optuna":
        raise _misplaced("--study", "a storage of Optuna")
    if objective is not None and kind not in {"optuna", "ray"}:
        raise _misplaced("--minimize and --maximize", "a storage of Optuna or results of Ray Tune")


def _misplaced(option: str, source: str) -> BadInput:
    return BadInput(option, f"must be left out unless the source is {source}", "", "Leave it out.")


def _kind_of(source: str, path: Path) -> str:
    """Return the kind of a source: `optuna`, `ray` or `yaml`.

    Raises:
        BadInput: The source is a script, does not exist or cannot be read.
    """
    if "://" in source:
        return "optuna"
    if path.is_dir():
        return "ray"
    if path.suffix == ".py":
        must = "must be a search of another tool"
        raise BadInput(
            source, must, "a Python script", f"Use `sweep init --script {source}` for its options."
        )
    try:
        start = _start_of(path)
    except FileNotFoundError:
        raise BadInput(source, "does not exist", "", _REMEDY) from None
    except OSError as error:
        raise BadInput(source, "must be a readable file", error.strerror or str(error), _REMEDY) from None
    return "optuna" if is_sqlite(start) or is_journal(start) else "yaml"


def _start_of(path: Path) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return file.read(4096) or b""


def _ray_trials(folder: Path) -> Iterator[RayTrial]:
    """Yield the trials of a folder of results, by name. Only params.json and result.json are read.

    Raises:
        BadInput: The folder has no trials, or too many or too large ones.
    """
    trials = sorted(each for each in folder.iterdir() if (each / "params.json").is_file())
    if not trials:
        must = "must have folders of trials with params.json and result.json"
        raise BadInput(str(folder), must, counted(len(list(folder.iterdir())), "entry", "entries"), _REMEDY)
    if len(trials) > _MOST_TRIALS:
        raise BadInput(str(folder), f"must have at most {_MOST_TRIALS:,} trials", f"{len(trials):,}", _REMEDY)
    size = 0
    for trial in trials:
        config = _json_of(trial / "params.json", _content(trial / "params.json", _LARGEST_CONFIG))
        if not isinstance(config, dict):
            raise BadInput(str(trial / "params.json"), "must be a JSON mapping", "", "Remove the folder.")
        results = (
            _content(trial / "result.json", _LARGEST_RESULTS) if (trial / "result.json").exists() else b""
        )
        size += len(results) + (trial / "params.json").stat().st_size
        if size > _LARGEST_FOLDER:
            must = f"must have configurations and results of at most {_LARGEST_FOLDER:,} bytes"
            raise BadInput(str(folder), must, "more", "Move some trials away.")
        yield RayTrial(trial.name, config, tuple(_results(trial / "result.json", results)))


def _results(file: Path, content: bytes) -> Iterator[dict[str, Any]]:
    lines = content.split(b"\n")
    if lines and lines[-1]:
        lines.pop()  # a killed trial leaves a line half written
    for line in lines:
        if line.strip():
            result = _json_of(file, line)
            if not isinstance(result, dict):
                raise BadInput(str(file), "must have a JSON mapping on each line", "", "Remove the folder.")
            yield dict(metrics_of(result))


def _content(file: Path, most: int) -> bytes:
    try:
        return content_of(file, most)
    except OSError as error:
        raise BadInput(str(file), "must be a readable file", error.strerror or str(error), _REMEDY) from None


def _json_of(file: Path, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadInput(
            str(file), "must be JSON", str(error)[:120], "Remove the folder of the trial."
        ) from None
