"""A checkpoint becomes one version of a registered model, however often its event is applied."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from orchestrator.ledger.sweeps.records import CheckpointRecord, Event
from orchestrator.tracking import events, model_registry
from orchestrator.tracking.mlflow_sink import Destination, MlflowSink
from orchestrator.tracking.model_registry import succeeds
from tests import sweeps
from tests.orchestrator.tracking.stored import NewDatabase, deliver
from tests.trainables.checkpoints import LISTOPS, saved, settings
from trainables import checkpoint
from trainables.data.task import Signature

NAME = "rotrnn-listops"
FACTS = {
    "data.digest": "feed",
    "data.comparable": False,
    "metric": "val/accuracy",
    "direction": "maximize",
    "value": 0.5,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("registered")


@pytest.fixture(scope="module")
def stored(folder: Path) -> checkpoint.Saved:
    """Return a real checkpoint."""
    return saved(folder, settings("listops", LISTOPS))[0]


@pytest.fixture(scope="module")
def destination(folder: Path, new_mlflow: NewDatabase) -> Destination:
    return Destination(new_mlflow(folder), str(folder / "artifacts"), "listops", sweeps.SWEEP_ID, "1.25")


def checkpoint_of(stored: checkpoint.Saved, number: int) -> checkpoint.Saved:
    """Write the checkpoint of trial `number`: the arrays of the stored one, under its own digest."""
    arrays, facts = checkpoint.load(stored.folder, stored.digest)
    return checkpoint.save(
        stored.folder.with_name(f"trial-{number}"), arrays, {**facts, "trial": f"t-{number}"}
    )


def model_event(stored: checkpoint.Saved, number: int, value: float, at_ms: int = 1) -> Event:
    """Return the event of trial `number`."""
    key, own = f"{sweeps.SWEEP_ID}-{number}", checkpoint_of(stored, number)
    record = CheckpointRecord(key, 20, "best", str(own.folder), own.digest, own.bytes, {})
    return events.model(key, NAME, record, "# A card", {**FACTS, "value": value}, at_ms)


@pytest.mark.slow
def test_a_checkpoint_is_registered_once(stored: checkpoint.Saved, destination: Destination) -> None:
    """Applied twice, by two writers, it gives one version with one set of files; the better is champion."""
    first, second = model_event(stored, 1, 0.5), model_event(stored, 2, 0.4, at_ms=2)
    assert deliver(destination, [first, first]) == []
    assert deliver(destination, [second, first]) == []
    client = MlflowClient(destination.uri)
    versions = client.search_model_versions(f"name = '{NAME}'")
    assert sorted(version.tags["value"] for version in versions) == ["0.4", "0.5"]
    experiment = client.get_experiment_by_name("listops")
    assert len(client.search_logged_models([experiment.experiment_id])) == 2
    champion = client.get_model_version_by_alias(NAME, model_registry.ALIAS)
    assert champion.tags["checkpoint.digest"] == checkpoint_of(stored, 1).digest
    assert champion.description == "# A card"
    run = client.get_run(champion.run_id)
    assert run.data.tags["trial.key"] == f"{sweeps.SWEEP_ID}-1"
    deliver(destination, [model_event(stored, 3, 0.6, at_ms=3)])
    assert client.get_model_version_by_alias(NAME, model_registry.ALIAS).tags["value"] == "0.6"


def test_a_version_needs_no_service_and_holds_no_pickle(
    stored: checkpoint.Saved, destination: Destination
) -> None:
    """It holds the unchanged checkpoint, the code that reads it, and pinned requirements."""
    deliver(destination, [model_event(stored, 1, 0.5)])
    versions = MlflowClient(destination.uri).search_model_versions(f"name = '{NAME}'")
    (source,) = (version.source for version in versions if version.tags["value"] == "0.5")
    place = Path(source.removeprefix("file://"))
    files = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    assert not [name for name in files if name.endswith((".pkl", ".pickle", ".pyc"))]
    assert "code/trainables/inference.py" in files
    assert not [name for name in files if "orchestrator" in name]
    own = checkpoint_of(stored, 1)
    assert checkpoint.is_whole(place / "artifacts" / own.folder.name, own.digest)
    pinned = (place / "requirements.txt").read_text().split()
    assert {line.partition("==")[0] for line in pinned} >= {"mlflow", "jax", "flax", "optax", "numpy"}


def test_a_missing_checkpoint_is_rejected_for_good(
    stored: checkpoint.Saved, destination: Destination
) -> None:
    """The other events of the sweep are delivered."""
    lost = model_event(stored, 7, 0.9)
    shutil.rmtree(lost.payload["checkpoint"])
    (refusal,) = deliver(destination, [lost])
    assert (refusal.kind, "does not exist" in refusal.reason) == ("model", True)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"value": "0.6"}, True),
        ({"value": "0.4"}, False),
        ({"value": "0.4", "direction": "minimize"}, True),
        ({"value": "0.4", "data.digest": "other"}, True),
        ({"value": "0.9", "data.digest": "other", "ended_ms": "4"}, False),
        ({"value": "0.1", "data.comparable": "True", "ended_ms": "4"}, True),
        ({}, True),
    ],
)
def test_the_champion_is_the_best_comparable_version(changes: dict[str, str], expected: bool) -> None:
    """Published data first, then the better value on the same data, else the later one."""
    present = {name: str(value) for name, value in FACTS.items()} | {"ended_ms": "5"}
    assert succeeds({**present, **changes}, present) is expected


def test_a_stand_in_never_replaces_a_real_model() -> None:
    present = {name: str(value) for name, value in FACTS.items()} | {
        "ended_ms": "5",
        "data.comparable": "True",
    }
    assert not succeeds({**present, "data.comparable": "False", "value": "0.99", "ended_ms": "9"}, present)


@pytest.mark.parametrize(
    ("signature", "texts", "takes", "gives"),
    [
        (Signature("class", 10, 18, 1, 40), ("x",), ["string"], ["answer", "probabilities"]),
        (
            Signature("class", 2, 90, 1, 40, towers=2),
            ("x", "y"),
            ["string", "string"],
            ["answer", "probabilities"],
        ),
        (Signature("steps", 9, 10, 1, 40), (), ["int32 (-1, -1)"], ["answer"]),
        (Signature("value", 1, None, 2, 40), (), ["float32 (-1, -1, 2)"], ["answer"]),
    ],
)
def test_the_schemas_of_inputs_and_outputs(
    signature: Signature, texts: tuple[str, ...], takes: list[str], gives: list[str]
) -> None:
    """Texts are columns, numbers are arrays."""
    schemas = model_registry.model_signature(signature, texts)
    assert [
        f"{column.type} {column.shape}" if schemas.inputs.is_tensor_spec() else column.type.name
        for column in schemas.inputs.inputs
    ] == takes
    assert schemas.outputs.input_names() == gives


def test_an_outage_is_not_a_rejection(
    stored: checkpoint.Saved, destination: Destination, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that failed half way is completed by the next delivery, and exists once."""
    sink, event = MlflowSink(destination), model_event(stored, 8, 0.1)

    def down(*_: object, **__: object) -> None:
        raise MlflowException("the server is gone")

    with monkeypatch.context() as patched:
        patched.setattr(MlflowClient, "log_model_artifacts", down)
        with pytest.raises(MlflowException, match="gone"):
            deliver(destination, [event], sink)
    assert deliver(destination, [event], sink) == []
    client = MlflowClient(destination.uri)
    wanted = f"tags.`checkpoint.digest` = '{event.payload['digest']}'"
    experiment = client.get_experiment_by_name("listops").experiment_id
    assert len(client.search_logged_models([experiment], filter_string=wanted)) == 1
