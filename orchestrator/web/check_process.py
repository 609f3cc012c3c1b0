"""Process that checks one untrusted file, replays a sweep or runs a query, with limits of time and memory.

    in   {"NAME": "value", ...}, the secret environment variables
    in   {"name": ..., "text": ..., "profile": ..., "overrides": [...], "new": ..., "root": ..., "data": ...,
          "plugins": ..., "owner": ..., "sizes": ..., "limits": {"cpu_seconds": ..., "memory_bytes": ...}}
     or  {"replay": ..., "schedulers": [...], "workers": [...], "draws": ..., "root": ..., "data": ...,
          "limits": ...}
     or  {"sql": ..., "rows": ..., "root": ..., "data": ..., "limits": ...}
    out  {"document": ..., "warnings": [...]}  or  {"plan": {...}}  or  {"report": {...}}
     or  {"answer": {...}}
     or  {"refusals": [{...}]}  or  {"exhausted": true}

A few bytes can define a grid of 10^12 trials or endlessly nested mappings, so the cost of a check is unknown
in advance. The process reads the ledger and writes nothing. It does not import the web framework, which would
take longer than the check.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orchestrator import process_secrets
from orchestrator.api.loaded_sweep import LoadedSweep
from orchestrator.api.local import LocalBackend
from orchestrator.api.planning import planned
from orchestrator.config.networks import layers
from orchestrator.config.strategy import SAMPLERS, SCHEDULERS, most_trials
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver.user_code import account_for, reader_for
from orchestrator.errors import BadInput, NotAllowed, Refusal, Unfinished, from_documents, to_document
from trainables.layers import LAYERS
from trainables.registry import Registry
from trainables.tasks import TASKS

MOST_TRIALS = 100_000
"""Largest number of trials of a sweep from HTTP."""


@dataclass(frozen=True)
class CheckLimits:
    """Resource limits of a check.

    Attributes:
        cpu_seconds: Processor time, including the imports.
        memory_bytes: Written memory; memory that is only mapped does not count.
        seconds: Wall-clock time; a process without memory may hang instead of ending.
    """

    cpu_seconds: int = 20
    memory_bytes: int = 2 * 1024**3
    seconds: float = 60.0


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


def _answer(given: Mapping[str, Any]) -> dict[str, Any]:
    if "sql" in given:
        return run_query(given)
    return replay(given) if "replay" in given else check(given)


def main() -> None:
    """Answer the request on standard input."""
    process_secrets.begin()
    given = json.load(sys.stdin)
    _limit(CheckLimits(**given["limits"]))
    try:
        answer = _answer(given)
    except Unfinished:
        answer = {"exhausted": True}
    except Refusal as refusal:
        answer = {"refusals": [to_document(one) for one in refusal.all()]}
    json.dump(answer, sys.stdout)


def _limit(limits: CheckLimits) -> None:
    for kind, most in (
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_DATA, limits.memory_bytes),
    ):
        resource.setrlimit(kind, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


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


if __name__ == "__main__":
    main()
