"""Idempotent registration of checkpoints as model versions in MLflow's registry.

A version holds the checkpoint, the code that reads it, and the versions of the packages that the code
imports. The code is `served`, the package `trainables` and, for a user's program, its Python files. A machine
that serves the model needs Python and pip, but not this service.

The alias `champion` of a model names the version to use.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import packages_distributions, version
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
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

from orchestrator.ledger.sweeps.selection import order
from trainables import checkpoint
from trainables.data.task import Output, Signature
from trainables.errors import Refusal
from trainables.layers import LAYERS
from trainables.sources import digest_of, files_of_reference, module_in, parsed, text_of
from trainables.tasks import TASKS
from trainables.trial import TrialSettings

ALIAS = "champion"
_DIGEST = "checkpoint.digest"
_SERVED = Path(__file__).with_name("served.py")
_PACKAGE = Path(checkpoint.__file__).parent
_saving = Lock()
"""Held while MLflow runs the code of a model, which it finds in a global variable of its own."""

_PINNED = ("mlflow", "jax", "jaxlib", "flax", "optax", "numpy", "pandas", "pillow", "filelock")
"""The packages that `served` and `trainables` import."""

_OF_SAVED = ("mlflow", "numpy", "pandas")
"""The packages that `served` imports to load files of a function or a command."""

_ANSWERS: Mapping[Output, Mapping[str, DataType | Array]] = {
    "class": {"answer": DataType.long, "probabilities": Array(DataType.double)},
    "steps": {"answer": Array(DataType.long)},
    "value": {"answer": DataType.double},
}
"""The columns of `trainables.inference.Answers`."""


def register(client: MlflowClient, experiment: str, run_id: str, payload: Mapping[str, Any]) -> None:
    """Create the version of a `model` event, unless it exists, and update the alias `champion`.

    Raises:
        MlflowException: INVALID_PARAMETER_VALUE if the checkpoint is missing or damaged.
    """
    name, tags = payload["name"], {**payload["tags"], _DIGEST: payload["digest"]}
    tags["ended_ms"] = str(payload["ended_ms"])
    _create_name(client, name)
    known = client.search_model_versions(f"name = '{name}' and tags.`{_DIGEST}` = '{payload['digest']}'")
    registered = (
        known[0] if known else _version(client, _logged(client, experiment, run_id, payload), tags, payload)
    )
    champion = _champion(client, name)
    if champion is None or succeeds(tags, champion.tags):
        client.set_registered_model_alias(name, ALIAS, registered.version)


def succeeds(new: Mapping[str, str], present: Mapping[str, str]) -> bool:
    """Return True if a version with the tags `new` replaces a champion with the tags `present`.

    A version that was trained on published data always precedes one that was trained on a stand-in. With the
    same data and metric, the better value wins. The later version wins if the values are equal or cannot be
    compared.
    """
    if new["data.comparable"] != present["data.comparable"]:
        return new["data.comparable"] == "True"
    comparable = all(new[name] == present[name] for name in ("data.digest", "metric"))
    if comparable and new["value"] != present["value"]:
        maximize = new["direction"] == "maximize"
        keys = [order(float(tags["value"]), 0, maximize=maximize) for tags in (new, present)]
        return keys[0] < keys[1]
    return int(new["ended_ms"]) >= int(present["ended_ms"])


def _create_name(client: MlflowClient, name: str) -> None:
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
    # The source is a location: MLflow would look up `models:/<id>` on the process's default tracking server.
    return client.create_model_version(
        payload["name"],
        logged.artifact_location,
        run_id=logged.source_run_id,
        tags=dict(tags),
        description=payload["card"],
        model_id=logged.model_id,
    )


def _logged(client: MlflowClient, experiment: str, run_id: str, payload: Mapping[str, Any]) -> LoggedModel:
    """Return the logged model of a checkpoint; complete one that an interrupted delivery has left."""
    wanted = f"tags.`{_DIGEST}` = '{payload['digest']}'"
    known = client.search_logged_models([experiment], filter_string=wanted)
    tags = {_DIGEST: payload["digest"]}
    logged = known[0] if known else client.create_logged_model(experiment, payload["name"], run_id, tags)
    if logged.status != LoggedModelStatus.READY:
        with TemporaryDirectory() as folder:
            _save(Path(folder), logged, payload)
            client.log_model_artifacts(logged.model_id, f"{folder}/model")
        client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, step=0)])
        client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
    return logged


def _save(folder: Path, logged: LoggedModel, payload: Mapping[str, Any]) -> None:
    """Write the files of a model in MLflow's format to `model` of a folder."""
    stored = Path(payload["checkpoint"])
    try:
        facts = checkpoint.facts_of(stored, payload["digest"])
        program = payload.get("program")
        if program is not None and "trained" in program:
            _check_saved(stored, facts)
        own = _own_of_network(facts) if program is None else _own_of_program(program, folder)
    except Refusal as refusal:
        raise MlflowException.invalid_parameter_value(str(refusal)) from refusal
    with _saving:
        save_model(
            str(folder / "model"),
            mlflow_model=Model(
                artifact_path=logged.artifact_location,
                run_id=logged.source_run_id,
                model_uuid=logged.model_id,
                model_id=logged.model_id,
            ),
            python_model=str(_SERVED),
            model_config={"checkpoint_digest": payload["digest"], **_kind(program)},
            code_paths=[str(_PACKAGE)],
            **{**own, "artifacts": {"checkpoint": str(stored), **own.get("artifacts", {})}},
        )


def _check_saved(stored: Path, facts: Mapping[str, Any]) -> None:
    if not facts["resumable"]:
        remedy = "Report a checkpoint: trial.report(..., checkpoint=folder)."
        raise Refusal(str(stored), "has no files to predict with", "", remedy)


def _kind(program: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the settings with which `served` loads a model."""
    if program is not None and "trained" in program:
        return {"is_program": False, "predictor": program["target"]}
    return {"is_program": program is not None}


def _own_of_network(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `save_model` for a network."""
    signature, settings = (
        Signature.from_document(facts["signature"]),
        TrialSettings.from_document(facts["settings"]),
    )
    return {
        "signature": model_signature(signature, TASKS[settings.task].texts),
        "input_example": _example(signature, TASKS[settings.task].texts),
        "pip_requirements": _requirements(settings),
    }


def _own_of_program(program: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Copy the code of a program or a script; return its arguments of `save_model`."""
    code = kept_code(program, folder / "program")
    names = _OF_SAVED if "trained" in program else _PINNED
    further = [line for line in code.requirements if line.partition("==")[0] not in names]
    artifacts = {} if code.folder is None else {"program": str(code.folder)}
    return {"artifacts": artifacts, "pip_requirements": [*_pinned(names), *further]}


def model_signature(signature: Signature, texts: tuple[str, ...]) -> ModelSignature:
    """Return the schemas of a model's inputs and outputs.

    Args:
        signature: Signature of the task's arrays.
        texts: Texts of an example; empty if examples are numbers.
    """
    outputs = Schema([ColSpec(kind, name) for name, kind in _ANSWERS[signature.output].items()])
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
    """Return the packages to install, including those of a third-party layer or task."""
    third_party = (LAYERS.package(settings.model.layer), TASKS.package(settings.task))
    return [*_pinned(), *(package for package in third_party if package)]


def _pinned(names: Sequence[str] = _PINNED) -> list[str]:
    return [f"{name}=={version(name)}" for name in names]


@dataclass(frozen=True)
class ProgramCode:
    """The code of a program in a model.

    Attributes:
        folder: Folder with the Python files, or None for an installed package.
        requirements: Distributions that the program needs, such as `scikit-learn==1.7.2`.
    """

    folder: Path | None
    requirements: list[str]


def kept_code(program: Mapping[str, Any], folder: Path) -> ProgramCode:
    """Copy the Python files of a program to a new folder, unless it is an installed package.

    Args:
        program: Value of the payload of a `model` event; see `events.model`.
        folder: Folder to create.

    Raises:
        Refusal: The code has changed since it trained the trial.
    """
    target, place = program["target"], Path(program["folder"])
    if digest_of(program.get("trained", target), place) != program["code"]:
        must, remedy = (
            "is not the code that trained the best trial",
            "Restore it, then run `mlflow rebuild`.",
        )
        raise Refusal(f"the code in {place}", must, "", remedy)
    module = target.partition(":")[0]
    if not (module.endswith(".py") or module_in(place, module)):
        return ProgramCode(None, _distributions({module.partition(".")[0]}))
    files = files_of_reference(target, place)
    for name, file in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, folder / name)
    return ProgramCode(folder, _distributions(_imported(file for _, file in files)))


def _imported(files: Iterable[Path]) -> set[str]:
    """Return the top-level names of all modules that Python files import."""
    found: set[str] = set()
    for file in files:
        with suppress(SyntaxError, ValueError):  # the program cannot import such a file
            for node in ast.walk(parsed(text_of(file), str(file))):
                if isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    found.add(node.module.partition(".")[0])
    return found


def _distributions(modules: set[str]) -> list[str]:
    """Return the distributions of modules with versions, except `trainables`, which every model contains."""
    known = packages_distributions()
    names = {name for module in modules - {"trainables"} for name in known.get(module, ())}
    return [f"{name}=={version(name)}" for name in sorted(names)]
