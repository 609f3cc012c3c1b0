"""Many events to few writes: the combined effect of a batch of events on each run, within MLflow's limits.

On SQLite a call of MLflow's costs 3 to 13 ms whatever it carries. A trial that starts, reports five times and
ends within one batch becomes one `create_run`, one `log_batch` and one `set_terminated`.

Source of the limits: `mlflow.utils.validation` of 3.17: keys of 250 characters, parameters of 6,000, tags of
8,000; names made of letters, digits, blanks and `_ - . : /` that are normal relative paths; 100 parameters,
100 tags and 1,000 metrics a batch. What exceeds a limit is changed as little as possible, and visibly.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from orchestrator.ledger.records import Event

KEY_LENGTH = 250
PARAMETER_LENGTH = 6000
TAG_LENGTH = 8000
METRICS_A_BATCH = 800
"""Below MLflow's 1,000, which parameters and tags of the same batch share."""
NAMES_A_BATCH = 100

_ILLEGAL = re.compile(r"[^/\w.\- :]")
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Point:
    """One point of a curve. All four fields identify it, so a point that is sent twice stays one point."""

    name: str
    value: float
    at_ms: int
    step: int


@dataclass
class Change:
    """The combined effect of a batch on one run.

    Attributes:
        run: the sweep's id or the trial's key.
        name: name of the run, or None if the batch does not start it.
        started_ms: start of the run, in milliseconds since 1970.
        parameters: hyperparameters as texts.
        tags: texts; of two values for one tag the later one is kept.
        points: points of the curves, in the order of the events.
        artifacts: payloads of `artifact` events.
        models: payloads of `model` events.
        dataset: name, digest and source of the examples, or None if the batch does not name them.
        status: MLflow's status at the end of the batch, or None if the batch does not change it.
        ended_ms: end of the run, if `status` is not RUNNING.
    """

    run: str
    name: str | None = None
    started_ms: int | None = None
    parameters: dict[str, str] = field(default_factory=dict)
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


def fold(run: str, events: Sequence[Event]) -> Change:
    """Return the combined effect of events on their run.

    Raises:
        KeyError: an event is of an unknown kind, or its payload lacks a field of its kind.
    """
    change = Change(run)
    for event in events:
        _STEPS[event.kind](change, event)
    return change


def _start(change: Change, event: Event) -> None:
    payload = event.payload
    change.name, change.started_ms = payload["name"], payload["started_ms"]
    change.parameters |= legal_names(payload["parameters"], PARAMETER_LENGTH)
    change.tags |= legal_names(payload["tags"], TAG_LENGTH)
    change.artifacts += [{"text": text, "name": name} for name, text in payload["texts"].items()]
    change.dataset = payload["dataset"] or change.dataset
    change.status, change.ended_ms = "RUNNING", None


def _metrics(change: Change, event: Event) -> None:
    step = event.payload["step"]
    for name, value in event.payload["values"].items():
        if is_number(value):
            change.points.append(Point(legal_name(name), float(value), event.at_ms, step))
        else:
            change.tags[legal_name(f"non-finite.{name}")] = f"{value} at step {step}"


def _tags(change: Change, event: Event) -> None:
    change.tags |= legal_names(event.payload["tags"], TAG_LENGTH)


def _artifact(change: Change, event: Event) -> None:
    change.artifacts.append(event.payload)


def _model(change: Change, event: Event) -> None:
    change.models.append({**event.payload, "ended_ms": event.at_ms})


def _end(change: Change, event: Event) -> None:
    _tags(change, event)
    _metrics(change, event)
    change.status, change.ended_ms = event.payload["status"], event.at_ms


_STEPS = {
    "start": _start,
    "metrics": _metrics,
    "tags": _tags,
    "artifact": _artifact,
    "model": _model,
    "end": _end,
}


def legal_name(name: str) -> str:
    """Return `name` if it is legal, else a similar legal name with a digest that keeps names distinct."""
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
    """Return True if MLflow can draw `value`: a finite number that is no truth value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max


def chunks(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    """Yield `items` in lists of at most `size`."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
