"""Events for MLflow: their constructors, and the combined effect of a batch on each run. Pure functions.

A payload is plain JSON and complete in itself, so that an event can be delivered a week later. An event has
one of six kinds:

    start      a run starts, or is resumed: name, parameters, tags
    metrics    one point on each of several curves, at one step, which repeats a report or an evaluation
    tags       texts about a run; a later value replaces an earlier one. With parameters that a script has
               logged, of which the first value counts
    artifact   a file, a folder or a text to keep with the run
    model      a checkpoint of the run becomes a version of a registered model
    end        a run ends: status, tags, last points

`run` is the sweep's id for the parent run and the trial's key for a child run.

`fold` combines events into few writes. On SQLite each call of MLflow costs 3 to 13 ms whatever its size: a
trial that starts, reports five times and ends within one batch becomes one `create_run`, one `log_batch` and
one `set_terminated`.

Source of the limits: `mlflow.utils.validation` of 3.17: keys of 250 characters, parameters of 6,000, tags of
8,000; names made of letters, digits, blanks and `_ - . : /` that are normal relative paths; 100 parameters,
100 tags and 1,000 metrics a batch. Names and texts that exceed a limit are changed as little as possible, and
visibly.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.assignment import INITIAL_NORM, NORM, SIZE, Logged
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.people.user_records import Note
from orchestrator.ledger.sweeps.records import (
    DESCRIPTION,
    UNFINISHED_TRIAL,
    CheckpointRecord,
    EvaluationRecord,
    Event,
    ReportRecord,
    SweepRecord,
    TrialRecord,
    is_confirmation,
    trial_label,
)
from orchestrator.placeholders import plain
from orchestrator.process_secrets import redacted, secrets_of_environment
from trainables.cost import SIZES

OWN = "sweep:"
"""Prefix of the names that the service adds to a trial; hyperparameters have no colon in their names."""

OBJECTIVE = "_objective"
"""Name of the metric that holds a trial's value, which is the best one of its validation curve.

MLflow draws charts in alphabetical order, so that this one is the first.
"""

RUN_NAME = "mlflow.runName"
"""Tag that renames a run."""

_REPORTED = "reported:"
_RESERVED = frozenset({"task", "layer"})
_RESERVED_PREFIXES = (
    *(OWN, _REPORTED, SIZE, "mlflow.", "sweep.", "trial.", "note.", "attempt.", "segment.", "non-finite."),
)
"""Names, and prefixes of the names, of the tags that the service sets on the run of a trial."""

_SIZES = frozenset(SIZE + name for name in SIZES)
_DURATIONS = frozenset({"seconds/train", "seconds/compile", "seconds/evaluate"})
"""Durations that the service itself measures; a script may report others with the same prefix."""

_FACTS = {
    "git_commit": "mlflow.source.git.commit",
    "command": "command",
    "sampler_seed": "sampler.seed",
    "comparable": "data.comparable",
    "note": "data.note",
}
"""Names of the tags that show facts of a sweep; other facts are not logged."""

_STATUS = {"COMPLETE": "FINISHED", "PRUNED": "FINISHED", "DIVERGED": "FINISHED", "FAILED": "FAILED"}
"""MLflow's status by final state; any other state can be resumed and is shown as KILLED."""


def sweep_started(record: SweepRecord, sweep: SweepConfig) -> Event:
    """Start the parent run of a sweep, or reopen it when the sweep is resumed."""
    facts, versions = record.facts, record.facts.get("versions", {})
    tags = {
        "sweep.id": record.id,
        "sweep.name": record.name,
        "sweep.profile": record.profile or "none",
        "sweep.digest": record.digest,
        "sweep.state": "RUNNING",
        "task": record.task,
        "layer": sweep.kind,
        "objective": f"{sweep.direction} {sweep.metric}",
        "data.source": record.data_source,
        "data.digest": record.data_digest,
        **{_FACTS[name]: facts[name] for name in _FACTS if name in facts},
        **({"known": ", ".join(known.source for known in sweep.known)} if sweep.known else {}),
        **({"versions": ", ".join(map(" ".join, versions.items()))} if versions else {}),
        "mlflow.note.content": f"{sweep.subject}. Data: {record.data_source}.",
    }
    started_ms = milliseconds(record.created_at)
    payload = {
        **_start(record.id, started_ms, _texts(tags)),
        "texts": {
            "search-space.yaml": sweep.source_text,
            **({"versions.json": json.dumps(versions, indent=2)} if versions else {}),
        },
        "dataset": {"name": record.task, "digest": record.data_digest, "source": record.data_source},
    }
    return Event("start", record.id, payload, started_ms)


def trial_started(trial: TrialRecord, sweep: SweepConfig) -> Event:
    """Start the child run of a trial."""
    tags = {
        "trial.key": trial.key,
        "trial.number": trial.number,
        "trial.role": trial.role,
        "trial.state": "RUNNING",
        "sweep.id": trial.sweep_id,
        "task": sweep.task,
        "layer": sweep.kind,
        **({"trial.repeats": trial.repeats} if trial.repeats else {}),
    }
    # Hyperparameters are not redacted, even if one equals a secret variable.
    parameters = _texts(
        {
            **{name: plain(value) for name, value in trial.params.items()},
            f"{OWN}seed": trial.seed,
            f"{OWN}steps": trial.total_steps,
        },
        secrets=(),
    )
    started_ms = milliseconds(trial.created_at)
    payload = {**_start(_name(trial.key), started_ms, _texts(tags)), "parameters": parameters}
    return Event("start", trial.key, payload, started_ms)


def trials_left(trials: Iterable[TrialRecord], at_ms: int) -> list[Event]:
    """Close the runs of unfinished trials, which do not train until their sweep is resumed."""
    return [
        trial_ended(trial.key, trial.state, None, trial.step, None, at_ms)
        for trial in trials
        if trial.state in UNFINISHED_TRIAL
    ]


def trials_resumed(trials: Iterable[TrialRecord], at_ms: int) -> list[Event]:
    """Reopen the runs of unfinished trials; their parameters stay those of the first start."""
    tags = {"trial.state": "RUNNING"}
    return [
        Event("start", trial.key, _start(_name(trial.key), milliseconds(trial.created_at), tags), at_ms)
        for trial in trials
        if trial.state in UNFINISHED_TRIAL
    ]


def _start(name: str, started_ms: int, tags: Mapping[str, str]) -> dict[str, Any]:
    """Return the payload of a `start` event without parameters, texts and a dataset."""
    return {
        "name": name,
        "parameters": {},
        "tags": tags,
        "started_ms": started_ms,
        "texts": {},
        "dataset": None,
    }


def metrics(run: str, step: int, values: Mapping[str, float], at_ms: int) -> Event:
    """Add one point to each curve of a run. Equal `at_ms` make a repeated point idempotent."""
    return Event("metrics", run, {"step": int(step), "values": curves(values)}, at_ms)


def points(row: ReportRecord | EvaluationRecord) -> Event:
    """Add the points of a report or an evaluation; the same row always gives the same event."""
    return metrics(row.trial_key, row.step, row.metrics, milliseconds(row.at))


def of_report(row: ReportRecord) -> list[Event]:
    """Return the events of a report; the same row always gives the same events.

    Of values that only the first report of a trial has, sizes become tags of the trial's run, such as
    `size/parameters`, and hidden-state norms before the first step become points of step 0.
    """
    at_ms = milliseconds(row.at)
    sizes = {name: f"{value:.0f}" for name, value in row.metrics.items() if name in _SIZES}
    norms = {
        NORM + name.removeprefix(INITIAL_NORM): value
        for name, value in row.metrics.items()
        if name.startswith(INITIAL_NORM)
    }
    first = [tags(row.trial_key, sizes, at_ms)] if sizes else []
    return [points(row), *first, *([metrics(row.trial_key, 0, norms, at_ms)] if norms else [])]


def curves(values: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of a report to plot, without sizes, first norms and durations.

    MLflow's pages get slower with every curve of a run. Names that are reserved for the service get a prefix.
    """
    drawn = {
        name: value
        for name, value in values.items()
        if name not in _SIZES | _DURATIONS and not name.startswith(INITIAL_NORM)
    }
    return {
        f"{_REPORTED}{name}" if name == OBJECTIVE or name.startswith((OWN, _REPORTED)) else name: value
        for name, value in drawn.items()
    }


def tags(run: str, values: Mapping[str, Any], at_ms: int) -> Event:
    """Set tags of a run."""
    return Event("tags", run, {"tags": _texts(values)}, at_ms)


def logged(run: str, logged: Logged, at_ms: int) -> list[Event]:
    """Add what a script has logged with MLflow besides metrics to the run of its trial.

    Tags with names that are reserved for the service get a prefix.
    """
    named = {
        f"{_REPORTED}{name}" if name in _RESERVED or name.startswith(_RESERVED_PREFIXES) else name: value
        for name, value in logged.tags.items()
    }
    payload = {"tags": _texts(named), "parameters": _texts(logged.parameters)}
    files = [artifact(run, Path(path), posixpath.dirname(name), at_ms) for name, path in logged.files.items()]
    return [*([Event("tags", run, payload, at_ms)] if named or logged.parameters else []), *files]


def noted(note: Note, description: str = "") -> Event:
    """Set the note of a sweep or a trial as the description of its run, and as tags.

    Args:
        note: The note.
        description: Description of the run without a note, which follows the text.
    """
    values = {
        DESCRIPTION: "\n\n".join(filter(None, (note.text, description))),
        "note.tags": ", ".join(note.tags),
        "note.favourite": "true" if note.favourite else "false",
    }
    return tags(note.target, values, milliseconds(note.at))


def artifact(run: str, path: Path, folder: str, at_ms: int) -> Event:
    """Keep a file, or all files of a folder, in `folder` of the run's artifacts ('' for their root)."""
    return Event("artifact", run, {"path": str(path.absolute()), "folder": folder}, at_ms)


def text(run: str, content: str, name: str, at_ms: int) -> Event:
    """Keep a text as the artifact `name`, a relative path."""
    return Event("artifact", run, {"text": content, "name": name}, at_ms)


def model(
    run: str,
    name: str,
    checkpoint: CheckpointRecord,
    card: str,
    facts: Mapping[str, Any],
    at_ms: int,
    program: Mapping[str, Any] | None = None,
) -> Event:
    """Make a trial's checkpoint a version of the registered model `name`.

    Args:
        run: Trial's key.
        name: Name of the registered model.
        checkpoint: Checkpoint with the weights.
        card: Description of the version in Markdown.
        facts: Tags of the version; `data.digest`, `data.comparable`, `metric`, `direction` and `value` decide
            which of two versions is the champion.
        at_ms: End of the sweep, in milliseconds since 1970.
        program: Program of the user: its `target`, `folder`, and the digest of its `code`. For a function or
            a command, `target` loads a predictor, and `trained` names the trained code. None for a network.
    """
    payload = {
        "name": name,
        "checkpoint": str(Path(checkpoint.path).absolute()),
        "digest": checkpoint.digest,
        "card": card,
        "tags": _texts(facts),
        **({} if program is None else {"program": dict(program)}),
    }
    return Event("model", run, payload, at_ms)


def trial_ended(key: str, state: str, cause: str | None, step: int, value: float | None, at_ms: int) -> Event:
    """Close the run of a trial; its value, if there is one, becomes a metric and a part of the run's name."""
    texts = {"trial.state": state, "trial.steps": step, **({"trial.cause": cause} if cause else {})}
    points = {} if value is None else {OBJECTIVE: value}
    if value is not None:
        texts[RUN_NAME] = f"{_name(key)} · {value:.4g}"
    return Event("end", key, _end(state, texts, points, step), at_ms)


def sweep_ended(
    sweep_id: str,
    state: str,
    at_ms: int,
    *,
    reason: str | None = None,
    results: Mapping[str, float] | None = None,
) -> Event:
    """Close the run of a sweep; `results` are metrics of the chosen trial, such as `test/accuracy`."""
    texts = {"sweep.state": state, **({"sweep.reason": reason} if reason else {})}
    return Event("end", sweep_id, _end(state, texts, results or {}, 0), at_ms)


def status_of(state: str) -> str:
    """Return MLflow's status of a sweep or trial that has ended, or was interrupted, in this state."""
    return _STATUS.get(state, "KILLED")


def milliseconds(seconds: float) -> int:
    """Convert a time of the ledger, in seconds since 1970, to MLflow's milliseconds."""
    return round(seconds * 1000)


def _name(key: str) -> str:
    """Return the name of the run of a trial before it has a value."""
    label = trial_label(key)
    return f"confirmation {label[1:]}" if is_confirmation(key) else label


def _end(state: str, texts: Mapping[str, Any], points: Mapping[str, float], step: int) -> dict[str, Any]:
    return {
        "status": status_of(state),
        "tags": _texts(texts),
        "values": dict(points),
        "step": int(step),
    }


def _texts(values: Mapping[str, Any], secrets: Sequence[str] | None = None) -> dict[str, str]:
    """Return values as redacted texts; by default the secrets are those of the environment."""
    written = {str(name): value if isinstance(value, str) else repr(value) for name, value in values.items()}
    known = secrets_of_environment() if secrets is None else secrets
    return {name: redacted(value, known) for name, value in written.items()}


KEY_LENGTH = 250
PARAMETER_LENGTH = 6000
TAG_LENGTH = 8000
METRICS_A_BATCH = 800
"""Largest number of metrics of a batch, below MLflow's limit of 1,000 that includes parameters and tags."""
NAMES_A_BATCH = 100

_ILLEGAL = re.compile(r"[^/\w.\- :]")
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Point:
    """One point of a curve, identified by all four fields, so that a repeated point is stored once."""

    name: str
    value: float
    at_ms: int
    step: int


@dataclass
class RunUpdate:
    """The combined effect of a batch on one run.

    Attributes:
        run: ID of the sweep or key of the trial.
        name: Name of the run, or None if the batch does not start it.
        started_ms: Start of the run, in milliseconds since 1970.
        parameters: Hyperparameters as texts.
        logged: Parameters that a script has logged; of two values for one parameter the first one is kept.
        tags: Texts; of two values for one tag the later one is kept.
        points: Points of the curves, in the order of the events.
        artifacts: Payloads of `artifact` events.
        models: Payloads of `model` events.
        dataset: Name, digest and source of the examples, or None if the batch does not name them.
        status: MLflow's status at the end of the batch, or None if the batch does not change it.
        ended_ms: End of the run, if `status` is not RUNNING.
    """

    run: str
    name: str | None = None
    started_ms: int | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    logged: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    artifacts: list[Mapping[str, Any]] = field(default_factory=list)
    models: list[Mapping[str, Any]] = field(default_factory=list)
    dataset: Mapping[str, str] | None = None
    status: str | None = None
    ended_ms: int | None = None


def by_run(events: Sequence[Event]) -> dict[str, list[Event]]:
    """Return the events of each run, with the runs in the order in which they first occur."""
    grouped: dict[str, list[Event]] = {}
    for event in events:
        grouped.setdefault(event.run, []).append(event)
    return grouped


def fold(run: str, events: Sequence[Event]) -> RunUpdate:
    """Return the combined effect of events on their run.

    Raises:
        KeyError: An event has an unknown kind, or its payload lacks a field.
    """
    change = RunUpdate(run)
    for event in events:
        match event.kind:
            case "start":
                _fold_start(change, event.payload)
            case "metrics":
                _fold_points(change, event)
            case "tags":
                change.tags |= legal_names(event.payload["tags"], TAG_LENGTH)
                named = legal_names(event.payload.get("parameters", {}), PARAMETER_LENGTH)
                change.logged = {**named, **change.logged}
            case "artifact":
                change.artifacts.append(event.payload)
            case "model":
                change.models.append({**event.payload, "ended_ms": event.at_ms})
            case "end":
                change.tags |= legal_names(event.payload["tags"], TAG_LENGTH)
                _fold_points(change, event)
                change.status, change.ended_ms = event.payload["status"], event.at_ms
            case _:
                raise KeyError(event.kind)
    return change


def _fold_start(change: RunUpdate, payload: Mapping[str, Any]) -> None:
    change.name, change.started_ms = payload["name"], payload["started_ms"]
    change.parameters |= legal_names(payload["parameters"], PARAMETER_LENGTH)
    change.tags |= legal_names(payload["tags"], TAG_LENGTH)
    change.artifacts += [{"text": text, "name": name} for name, text in payload["texts"].items()]
    change.dataset = payload["dataset"] or change.dataset
    change.status, change.ended_ms = "RUNNING", None


def _fold_points(change: RunUpdate, event: Event) -> None:
    step = event.payload["step"]
    for name, value in event.payload["values"].items():
        if is_number(value):
            change.points.append(Point(legal_name(name), float(value), event.at_ms, step))
        else:
            change.tags[legal_name(f"non-finite.{name}")] = f"{value} at step {step}"


def legal_name(name: str) -> str:
    """Return a legal name for a metric, parameter or tag; an illegal one is changed and gets a digest."""
    cleaned = posixpath.normpath(_ILLEGAL.sub("_", name)).lstrip("/.").rstrip()
    if name and cleaned == name and len(name) <= KEY_LENGTH:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{cleaned[: KEY_LENGTH - 9]}_{digest}"


def legal_names(values: Mapping[str, str], length: int) -> dict[str, str]:
    """Return `values` with legal names and with texts of at most `length` characters."""
    return {legal_name(name): shortened(value, length) for name, value in values.items()}


def shortened(text: str, length: int) -> str:
    """Return `text`, cut to `length` characters with a note of its full length."""
    if len(text) <= length:
        return text
    marker = f" [... {len(text)} characters in all]"
    return text[: length - len(marker)] + marker


def is_number(value: object) -> bool:
    """Return True if MLflow can plot `value`: a finite number, not a bool."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max


def chunks(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    """Yield `items` in lists of at most `size`."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
