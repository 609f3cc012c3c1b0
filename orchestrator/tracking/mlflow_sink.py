"""Applies events to MLflow so that applying them again changes nothing.

- Events are written only to runs that the ledger has recorded, because MLflow would silently create a second
  run. A run that the ledger does not know was left by a driver that died or lost its lease before it could
  record the run. Such a run is deleted.
- Changes that people make to recorded runs are undone if they prevent delivery: deleted runs and experiments
  are restored, and moved runs are moved back. Experiments may be renamed. A run that was deleted permanently
  is created again.
- The time of a point is fixed in its event. MLflow's database keeps one row for each (run, name, time, step,
  value), so a point that is sent twice is stored once.
- A parameter keeps its first value, tags are set, artifacts are overwritten, and the last status is kept.
- A version of a model is looked up by the digest of its checkpoint before it is created.
- The number of the newest batch is a tag of the sweep's run. It shows what a restored database has.

This module imports neither JAX nor Ray nor Optuna.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput, Experiment, InputTag, Metric, Param, Run, RunTag, ViewType
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from orchestrator.ledger.sweeps.records import Event
from orchestrator.tracking.database import connect
from orchestrator.tracking.events import (
    METRICS_A_BATCH,
    NAMES_A_BATCH,
    RUN_NAME,
    RunUpdate,
    by_run,
    chunks,
    fold,
)
from orchestrator.tracking.mlflow_private import EXPERIMENT_KIND, trial_curves
from orchestrator.tracking.model_registry import register

_REFUSALS = frozenset({"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "INVALID_STATE"})
"""Error codes with which MLflow rejects an invalid event.

They do not prove that the event is invalid: MLflow also answers BAD_REQUEST when its pool of connections is
exhausted, and its client reports any answer with status 400, such as that of a proxy, as BAD_REQUEST.
"""

_NO_EVENT = (KeyError, TypeError, ValueError)
"""Errors that `fold` raises for an invalid event."""

_TOKEN = "sweep.token"
_BATCH = "sweep.batch"
_PARENT = "mlflow.parentRunId"
_NOTE = "mlflow.note.content"


@dataclass(frozen=True)
class Destination:
    """Destination of the runs of one sweep.

    Attributes:
        uri: MLflow's tracking URI.
        artifacts: Root of the artifacts of a new experiment, or None to let a server choose it.
        experiment: Name of the experiment, which is the task's name.
        sweep_id: Tag `sweep.id` of the parent run.
        sweep_created: Tag `sweep.created`; two ledgers may have a sweep of the same id on one shared server.
        minimize: Whether the best trial is the one with the smallest value.
        number: Number of the driver's token, tag `sweep.token` of each run that it creates.
        runs: MLflow's run IDs that the ledger has recorded, by sweep id and trial key.
    """

    uri: str
    artifacts: str | None
    experiment: str
    sweep_id: str
    sweep_created: str
    minimize: bool = False
    number: int = 0
    runs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Refused:
    """An event that MLflow rejects permanently, and the reason."""

    run: str
    kind: str
    reason: str


class MlflowSink:
    """Writes one sweep's events to MLflow.

    Args:
        destination: Destination of the sweep.
        may_write: Function that is called before each write, and raises an error after the end of the lease.
        client: Client of MLflow; by default that of the destination.

    Attributes:
        batch: Number of the newest batch that MLflow had at first, 0 if the number is missing.
        lost: Number of recorded runs that MLflow did not have.
        recreated: ID of a new parent run, by the ID of the sweep, to record if the old one was lost.
        notes: Messages about repaired and lost runs.
    """

    def __init__(
        self,
        destination: Destination,
        may_write: Callable[[], None] = lambda: None,
        client: MlflowClient | None = None,
    ) -> None:
        self._to, self._may_write = destination, may_write
        self._client = client or connect(destination.uri)
        self._runs: dict[str, str] = {}
        self._fresh: set[str] = set()
        self.batch, self.lost = 0, 0
        self.recreated: dict[str, str] = {}
        self.notes: list[str] = []
        self._experiment = self._experiment_of_runs() or self._experiment_id()
        self._reconcile()

    @property
    def sweep_run(self) -> str | None:
        """MLflow's ID of the sweep's own run, or None before it exists."""
        return self._runs.get(self._to.sweep_id)

    @property
    def sweep_id(self) -> str:
        """ID of the sweep that is delivered."""
        return self._to.sweep_id

    def create(self, events: Sequence[Event]) -> dict[str, str]:
        """Create missing runs of the events; return their ids.

        The ids must be recorded in the ledger before the events are applied.
        """
        before = dict(self._runs)
        for run, of_run in by_run(events).items():
            if run not in self._runs and (whole := [event for event in of_run if _is_event(event)]):
                self._create(self._folded(run, whole))
                self._fresh.add(run)
        return {run: run_id for run, run_id in self._runs.items() if run not in before}

    def delete(self, runs: Mapping[str, str]) -> None:
        """Delete runs that the ledger refused to record."""
        for run, run_id in runs.items():
            self._client.delete_run(run_id)
            self._runs.pop(run, None)

    def apply(self, events: Sequence[Event]) -> list[Refused]:
        """Write a batch to existing runs; return the events that MLflow rejects permanently.

        Raises:
            MlflowException: MLflow cannot be reached or written to. Apply the batch again later.
        """
        refused: list[Refused] = []
        for run, of_run in by_run(events).items():
            if self._refusal(run, of_run) is not None:
                reasons = [(event, self._proven_refusal(run, event)) for event in of_run]
                refused += [
                    Refused(run, event.kind, reason) for event, reason in reasons if reason is not None
                ]
        return refused

    def finish(self, batch: int) -> None:
        """Note in MLflow that all of a batch is written."""
        if (run_id := self.sweep_run) is not None:
            self._may_write()
            self._client.set_tag(run_id, _BATCH, str(batch))

    def _proven_refusal(self, run: str, event: Event) -> str | None:
        """Write one event; return the reason if MLflow rejects it but accepts another write.

        Raises:
            MlflowException: MLflow rejects any write to the run, so the event may be valid.
        """
        if self._refusal(run, [event]) is None:
            return None
        self._may_write()
        name = "sweep.id" if run == self._to.sweep_id else "trial.key"
        self._client.set_tag(self._runs[run], name, run)  # which changes nothing
        return self._refusal(run, [event])

    def _refusal(self, run: str, events: Sequence[Event]) -> str | None:
        """Write events of one run together; return the reason if MLflow rejects them."""
        try:
            change = self._folded(run, events)
        except _NO_EVENT as error:
            return f"not an event: {error!r}"
        try:
            self._write(change)
        except MlflowException as error:
            if error.error_code not in _REFUSALS:
                raise
            return str(error.message)
        return None

    def _folded(self, run: str, events: Sequence[Event]) -> RunUpdate:
        change = fold(run, events)
        if _NOTE in change.tags and run == self._to.sweep_id:
            change.tags[_NOTE] += self._links()
        return change

    def _write(self, change: RunUpdate) -> None:
        self._may_write()
        run_id, known = self._runs[change.run], change.run not in self._fresh
        self._fresh.discard(change.run)
        if change.logged:
            # MLflow refuses another value of a parameter, as of one that a further attempt logs.
            present = self._client.get_run(run_id).data.params
            new = {name: value for name, value in change.logged.items() if name not in present}
            change.parameters = {**new, **change.parameters}
        self._write_values(run_id, change, tags=change.tags if known else {})
        if change.dataset:
            self._client.log_inputs(run_id, [_dataset(change.dataset)])
        for payload in change.artifacts:
            self._write_artifact(run_id, payload)
        for payload in change.models:
            register(self._client, self._experiment, run_id, payload)
        if change.status == "RUNNING" and known:
            self._client.update_run(run_id, status="RUNNING")
        elif change.status not in (None, "RUNNING"):
            self._client.set_terminated(run_id, change.status, change.ended_ms)

    def _links(self) -> str:
        curves = trial_curves(self._experiment, self._to.sweep_id, minimize=self._to.minimize)
        return f"\n\n[Curves of its trials]({curves})"

    def _write_values(self, run_id: str, change: RunUpdate, tags: dict[str, str]) -> None:
        metrics = [Metric(point.name, point.value, point.at_ms, point.step) for point in change.points]
        parameters = [Param(*item) for item in change.parameters.items()]
        batches = zip_longest(
            chunks(metrics, METRICS_A_BATCH),
            chunks(parameters, NAMES_A_BATCH),
            chunks([RunTag(*item) for item in tags.items()], NAMES_A_BATCH),
            fillvalue=(),
        )
        for some_metrics, some_parameters, some_tags in batches:
            self._client.log_batch(run_id, some_metrics, some_parameters, some_tags)

    def _write_artifact(self, run_id: str, payload: Mapping[str, Any]) -> None:
        if "text" in payload:
            self._client.log_text(run_id, payload["text"], payload["name"])
            return
        path, folder = Path(payload["path"]), payload["folder"] or None
        if path.is_dir():
            self._client.log_artifacts(run_id, str(path), folder)
        elif path.is_file():
            self._client.log_artifact(run_id, str(path), folder)
        else:
            raise MlflowException.invalid_parameter_value(f"the artifact {path} no longer exists")

    def _create(self, change: RunUpdate) -> str:
        """Create the run of a change, with its tags; create its parent first if it does not exist."""
        self._may_write()
        tags = {**change.tags, _TOKEN: str(self._to.number), **self._place(change.run)}
        # MLflow refuses a name beside a tag with another one; a batch may begin and end a run.
        name = tags.pop(RUN_NAME, change.name or change.run)
        run = self._client.create_run(
            self._experiment, start_time=change.started_ms, tags=tags, run_name=name
        )
        self._runs[change.run] = run.info.run_id
        return str(run.info.run_id)

    def _parent(self) -> str:
        sweep_id = self._to.sweep_id
        return self._runs.get(sweep_id) or self._create(RunUpdate(sweep_id))

    def _reconcile(self) -> None:
        """Keep the runs that the ledger has recorded, and delete the other runs of drivers.

        Raises:
            TimeoutError: A driver with a newer token has created a run, so this process read the ledger too
                early to decide which runs to delete.
        """
        kept: dict[str, Run] = {}
        for run, stored in self._stored():
            run_id, is_deleted = str(stored.info.run_id), stored.info.lifecycle_stage == "deleted"
            if not is_deleted and int(stored.data.tags.get(_TOKEN, 0)) > self._to.number:
                raise TimeoutError(f"a driver with a newer token has created the run {run_id}")
            if self._to.runs.get(run) == run_id:
                kept[run] = stored
            elif not is_deleted and (_TOKEN in stored.data.tags or run in self._to.runs):
                self._may_write()
                self._client.delete_run(run_id)
        missing = {run: run_id for run, run_id in self._to.runs.items() if run not in kept}
        found = {run: back for run, run_id in missing.items() if (back := self._run(run_id)) is not None}
        kept |= found
        self._runs |= {run: str(stored.info.run_id) for run, stored in kept.items()}
        if (own := kept.get(self._to.sweep_id)) is not None:
            number = own.data.tags.get(_BATCH, "")
            self.batch = int(number) if number.isdecimal() else 0  # a person can change it
        if kept and self._to.sweep_id not in self._runs:
            self.recreated[self._to.sweep_id] = self._create(RunUpdate(self._to.sweep_id))
        for run, stored in kept.items():
            self._put_right(run, stored)
        self.lost = len(missing) - len(found)
        if self.lost:
            text = f"MLflow has lost {self.lost} of {len(self._to.runs)} runs of {self._to.sweep_id}"
            self.notes.append(f"{text}, which are created again")

    def _put_right(self, run: str, stored: Run) -> None:
        """Restore a recorded run if it was deleted, and its identifying tags."""
        run_id = str(stored.info.run_id)
        wrong = {
            name: value for name, value in self._place(run).items() if stored.data.tags.get(name) != value
        }
        if stored.info.lifecycle_stage == "deleted":
            self._may_write()
            self._client.restore_run(run_id)
            self.notes.append(f"The run of {run} was deleted in MLflow, and has been restored")
        for name, value in wrong.items():
            self._may_write()
            self._client.set_tag(run_id, name, value)
        if wrong:
            self.notes.append(f"The run of {run} was moved in MLflow, and has its place again")

    def _place(self, run: str) -> dict[str, str]:
        """Return the identifying tags of a run."""
        if run == self._to.sweep_id:
            return {"sweep.id": run, "sweep.created": self._to.sweep_created}
        return {"trial.key": run, _PARENT: self._parent()}

    def _run(self, run_id: str) -> Run | None:
        """Return a run, which may be deleted, or None if MLflow does not have it."""
        try:
            return self._client.get_run(run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None

    def _stored(self) -> Iterator[tuple[str, Run]]:
        """Yield all runs of the sweep, deleted ones included, oldest first, by sweep ID or trial key."""
        own = {"sweep.id": self._to.sweep_id, "sweep.created": self._to.sweep_created}
        for parent in reversed([*self._search(own)]):
            for child in reversed([*self._search({_PARENT: parent.info.run_id})]):
                if (key := child.data.tags.get("trial.key")) is not None:  # a person can nest runs too
                    yield key, child
            yield self._to.sweep_id, parent

    def _search(self, tags: dict[str, str]) -> Iterator[Run]:
        condition = " and ".join(f"tags.`{name}` = '{_quotable(value)}'" for name, value in tags.items())
        token = None
        while True:
            page = self._client.search_runs(
                [self._experiment], condition, ViewType.ALL, max_results=1000, page_token=token
            )
            yield from page
            token = page.token
            if not token:
                return

    def _experiment_of_runs(self) -> str | None:
        """Return the experiment of the recorded runs, which may have been renamed; None without runs."""
        recorded = self._to.runs.get(self._to.sweep_id)
        if recorded is None or (run := self._run(recorded)) is None:
            return None
        experiment = self._client.get_experiment(run.info.experiment_id)
        self._restore(experiment)
        return str(experiment.experiment_id)

    def _experiment_id(self) -> str:
        """Return the experiment of the destination; create it if it is missing."""
        name, folder = self._to.experiment, self._to.artifacts
        root = None if folder is None else f"{Path(folder).absolute().as_uri()}/{_folder_of(name)}"
        try:
            experiment = self._client.get_experiment_by_name(name)
            if experiment is None:
                return str(self._client.create_experiment(name, root, _experiment_tags(name)))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            return self._experiment_id()  # another sweep of the task created it meanwhile
        self._restore(experiment)
        return str(experiment.experiment_id)

    def _restore(self, experiment: Experiment) -> None:
        if experiment.lifecycle_stage == "deleted":
            self._client.restore_experiment(experiment.experiment_id)
            self.notes.append(
                f"The experiment {experiment.name} was deleted in MLflow, and has been restored"
            )


def _folder_of(experiment: str) -> str:
    """Return a distinct folder name for the artifacts of an experiment."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", experiment)
    digest = hashlib.sha256(experiment.encode()).hexdigest()[:8]
    return plain if plain == experiment and len(plain) <= 80 else f"{plain[:80]}-{digest}"


def _is_event(event: Event) -> bool:
    try:
        fold(event.run, [event])
    except _NO_EVENT:
        return False
    return True


def _experiment_tags(task: str) -> dict[str, str]:
    note = f"Sweeps of the task `{task}`: one run a sweep, its trials below it."
    return {**EXPERIMENT_KIND, _NOTE: note}


def _dataset(examples: Mapping[str, str]) -> DatasetInput:
    """Return the examples of a sweep as an input of a run; MLflow limits the digest to 36 characters."""
    source = json.dumps({"source": examples["source"], "sha256": examples["digest"]})
    return DatasetInput(
        Dataset(examples["name"], examples["digest"][:36], source_type="local", source=source),
        [InputTag("mlflow.data.context", "training, validation and test")],
    )


def _quotable(value: str) -> str:
    assert not set(value) & set("'\\"), f"ids and times are slugs (got {value!r})"
    return value
