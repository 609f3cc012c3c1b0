"""A checkpoint as a version of a model in MLflow's registry, made once however often it is told.

A version holds the checkpoint as it is (arrays without pickle), the code that reads it (`served`, as models
from code are kept, and the package `trainables`), and the versions of the packages that both import: a
machine that serves it needs Python, pip, and nothing of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from mlflow.entities import LoggedModel, LoggedModelOutput, LoggedModelStatus
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.pyfunc import save_model
from mlflow.tracking import MlflowClient
from mlflow.types.schema import Array, ColSpec, DataType, Schema, TensorSpec
from pandas import DataFrame

from orchestrator.tracking.champion import succeeds
from trainables import checkpoint
from trainables.data.task import Output, Signature
from trainables.errors import DamagedCheckpoint
from trainables.layers import LAYERS
from trainables.tasks import TASKS
from trainables.trial import TrialSettings

ALIAS = "champion"
_DIGEST = "checkpoint.digest"
_SERVED = Path(__file__).with_name("served.py")
_PACKAGE = Path(checkpoint.__file__).parent
_PINNED = ("mlflow", "jax", "jaxlib", "flax", "optax", "numpy", "pandas", "pillow")
"""What `served` and `trainables` import."""

_ANSWERS: Mapping[Output, Mapping[str, DataType | Array]] = {
    "class": {"answer": DataType.long, "probabilities": Array(DataType.double)},
    "steps": {"answer": Array(DataType.long)},
    "value": {"answer": DataType.double},
}
"""The columns of `trainables.inference.Answers`."""


def register(client: MlflowClient, experiment: str, run_id: str, payload: Mapping[str, Any]) -> None:
    """Make a version of what a `model` event tells, unless it is there, and the champion if it is to be it.

    Raises:
        MlflowException: INVALID_PARAMETER_VALUE if the checkpoint is not, or no longer, whole.
    """
    name, tags = payload["name"], {**payload["tags"], _DIGEST: payload["digest"]}
    tags["ended_ms"] = str(payload["ended_ms"])
    _make_name(client, name)
    found = client.search_model_versions(f"name = '{name}' and tags.`{_DIGEST}` = '{payload['digest']}'")
    made = (
        found[0] if found else _version(client, _logged(client, experiment, run_id, payload), tags, payload)
    )
    champion = _champion(client, name)
    if champion is None or succeeds(tags, champion.tags):
        client.set_registered_model_alias(name, ALIAS, made.version)


def _make_name(client: MlflowClient, name: str) -> None:
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _champion(client: MlflowClient, name: str) -> ModelVersion | None:
    holder = client.get_registered_model(name).aliases.get(ALIAS)
    return client.get_model_version(name, holder) if holder else None


def _version(
    client: MlflowClient, logged: LoggedModel, tags: Mapping[str, str], payload: Mapping[str, Any]
) -> ModelVersion:
    # By its place, for of `models:/<id>` MLflow asks the tracking server of the process, not of the client.
    return client.create_model_version(
        payload["name"],
        logged.artifact_location,
        run_id=logged.source_run_id,
        tags=dict(tags),
        description=payload["card"],
        model_id=logged.model_id,
    )


def _logged(client: MlflowClient, experiment: str, run_id: str, payload: Mapping[str, Any]) -> LoggedModel:
    """Return the files of a version in MLflow; those of an earlier delivery that was cut off are finished."""
    wanted = f"tags.`{_DIGEST}` = '{payload['digest']}'"
    found = client.search_logged_models([experiment], filter_string=wanted)
    tags = {_DIGEST: payload["digest"]}
    logged = found[0] if found else client.create_logged_model(experiment, payload["name"], run_id, tags)
    if logged.status != LoggedModelStatus.READY:
        with TemporaryDirectory() as folder:
            _save(Path(folder) / "model", logged, Path(payload["checkpoint"]))
            client.log_model_artifacts(logged.model_id, f"{folder}/model")
        client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, step=0)])
        client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
    return logged


def _save(folder: Path, logged: LoggedModel, stored: Path) -> None:
    """Write a model's files as MLflow wants them."""
    try:
        facts = checkpoint.load(stored)[1]
    except DamagedCheckpoint as damage:
        raise MlflowException.invalid_parameter_value(str(damage)) from damage
    signature, settings = (
        Signature.from_document(facts["signature"]),
        TrialSettings.from_document(facts["settings"]),
    )
    save_model(
        str(folder),
        mlflow_model=Model(
            artifact_path=logged.artifact_location,
            run_id=logged.source_run_id,
            model_uuid=logged.model_id,
            model_id=logged.model_id,
        ),
        python_model=str(_SERVED),
        artifacts={"checkpoint": str(stored)},
        code_paths=[str(_PACKAGE)],
        signature=model_signature(signature, TASKS[settings.task].texts),
        input_example=_example(signature, TASKS[settings.task].texts),
        pip_requirements=_requirements(settings),
    )


def model_signature(signature: Signature, texts: tuple[str, ...]) -> ModelSignature:
    """Return what a model takes and gives, in MLflow's words.

    Args:
        signature: of its task's arrays.
        texts: an example in words, or nothing if examples are numbers.
    """
    outputs = Schema([ColSpec(each, name) for name, each in _ANSWERS[signature.output].items()])
    if texts:
        return ModelSignature(Schema([ColSpec(DataType.string) for _ in texts]), outputs)
    numbers = np.dtype(np.int32 if signature.vocabulary else np.float32)
    return ModelSignature(Schema([TensorSpec(numbers, (-1, -1, *_width(signature)))]), outputs)


def _example(signature: Signature, texts: tuple[str, ...]) -> Any:
    if texts:
        return DataFrame([texts])
    kind = np.int32 if signature.vocabulary else np.float32
    return np.zeros((1, signature.length, *_width(signature)), kind)


def _width(signature: Signature) -> tuple[int, ...]:
    return () if signature.vocabulary else (signature.features,)


def _requirements(settings: TrialSettings) -> list[str]:
    """Return what to install beside the model's own code, other people's layers and tasks included."""
    foreign = (LAYERS.package(settings.model.layer), TASKS.package(settings.task))
    return [*(f"{name}=={version(name)}" for name in _PINNED), *(each for each in foreign if each)]
