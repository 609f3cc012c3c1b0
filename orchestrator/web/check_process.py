"""Checks of one untrusted file, replays of a sweep and queries, which `limited_process` runs with limits.

It does not import the web framework, which would take longer than the check.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator.api.loaded_sweep import LoadedSweep
from orchestrator.api.local import LocalBackend
from orchestrator.api.planning import planned
from orchestrator.config.networks import layers
from orchestrator.config.strategy import SAMPLERS, SCHEDULERS, most_trials
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver.user_code import account_for, reader_for
from orchestrator.errors import BadInput, NotAllowed, from_documents, to_document
from trainables.layers import LAYERS
from trainables.registry import Registry
from trainables.tasks import TASKS

MOST_TRIALS = 100_000
"""Largest number of trials of a sweep from HTTP."""


def check_own(specification: SweepConfig, owner: str, *, plugins: bool) -> None:
    """Check that the service would run only code of this package.

    Args:
        specification: Specification of the sweep.
        owner: Owner of the sweep.
        plugins: Whether plugins of other installed packages are allowed; code of users never is.

    Raises:
        NotAllowed: It has a trainable that would run as the service, or uses a plugin.
        BadInput: Its code cannot run under the account of its owner.
    """
    check_trainable(specification, owner)
    if plugins:
        return
    for where, registry, name in _names(specification):
        package = registry.package(name)
        if package is not None:
            must = "must be part of this package"
            remedy = "Ask an admin to start `serve` with `--allow-plugins`."
            raise NotAllowed(where, must, f"{name}, a plugin of {package}", remedy)


def check_trainable(specification: SweepConfig, owner: str) -> None:
    """Check that a trainable, if any, runs under the account of its owner.

    Raises:
        NotAllowed: It would run as the service.
        BadInput: It cannot run under the account of its owner.
    """
    if account_for(specification.trainable, owner) is None and specification.trainable is not None:
        must = "must be omitted over HTTP, because its code would run as the service"
        remedy = "Run `sweep submit` on the machine of the service, or ask for `serve --code-as-users`."
        raise NotAllowed("trainable", must, specification.subject, remedy)


def check_size(specification: SweepConfig) -> None:
    """Check that a search has at most `MOST_TRIALS` trials.

    Raises:
        BadInput: It has more.
    """
    trials = most_trials(specification.document())
    if trials > MOST_TRIALS:
        must = f"must be at most {MOST_TRIALS:,} trials"
        raise BadInput("budget.trials", must, f"{trials:,}", "Split the search into several sweeps.")


def check(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan of a file, or its document and its warnings if `sizes` is None.

    Raises:
        Refusal: The file is wrong, or exceeds a limit.
        NotAllowed: The service would run code of another package or of a user.
    """
    with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
        sweep = _loaded(given, Path(folder))
    specification = sweep.specification
    check_trainable(specification, given["owner"])
    _check_folder(specification, Path(folder))
    check_size(specification)
    check_own(specification, given["owner"], plugins=given["plugins"])
    sizes = given["sizes"]
    if sizes is None:
        return {"document": specification.document(), "warnings": sweep.warnings(given["owner"])}
    return {"plan": asdict(planned(sweep, given["owner"], sizes=sizes))}


def replay(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report of a replay.

    Raises:
        Refusal: A scheduler is wrong, or no trial of the sweep has ended.
    """
    backend = LocalBackend(given["root"], given["data"])
    report = backend.replay(given["replay"], given["schedulers"], given["workers"], draws=given["draws"])
    return {"report": asdict(report)}


def run_query(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a query.

    Raises:
        Refusal: The query is wrong, or takes too long.
    """
    answer = LocalBackend(given["root"], given["data"]).sql(given["sql"], rows=given["rows"])
    return {"answer": asdict(answer)}


def answer(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request of `limited_process`.

    Raises:
        Refusal: The file or the request is wrong, or exceeds a limit.
    """
    if "sql" in given:
        return run_query(given)
    return replay(given) if "replay" in given else check(given)


def _loaded(given: Mapping[str, Any], folder: Path) -> LoadedSweep:
    file, reader = folder / f"{given['name']}.yaml", reader_for(given["owner"])
    file.touch(mode=0o600)
    file.write_text(given["text"], encoding="utf-8")
    if reader is not None:
        os.chown(file, reader.uid, reader.gid)
        folder.chmod(0o711)
    try:
        return LoadedSweep.load(
            file,
            profile=given["profile"],
            overrides=given["overrides"],
            new=given["new"],
            root=given["root"],
            data=given["data"],
            reader=reader,
            sources=False,
        )
    except BadInput as refusal:
        raise from_documents(
            {**to_document(one), "where": one.where.replace(f"{folder}/", "")} for one in refusal.all()
        ) from None


def _check_folder(specification: SweepConfig, sent: Path) -> None:
    """Check that a file from HTTP names the folder of its code, because the file is sent without it."""
    trainable = specification.trainable
    if trainable is not None and Path(trainable.folder).is_relative_to(sent):
        must = "must be the absolute path of a folder on the machine of the service"
        raise BadInput("trainable.folder", must, "", "Write folder: /home/ada/digits, for example.")


def _names(specification: SweepConfig) -> Iterator[tuple[str, Registry[Any], str]]:
    yield "sampler", SAMPLERS, specification.sampler.name
    yield "scheduler", SCHEDULERS, specification.scheduler.name
    if specification.trainable is not None:
        return
    yield "task", TASKS, specification.task
    for layer in layers(specification):
        yield "model.layer", LAYERS, layer
