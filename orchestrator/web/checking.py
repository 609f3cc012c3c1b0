"""Check one search-space file that a stranger has sent, in a process with limits of time and memory.

    in   {"NAME": "value", ...}, the variables that are secret
    in   {"name": ..., "text": ..., "profile": ..., "overrides": [...], "new": ..., "root": ..., "data": ...,
          "plugins": ..., "owner": ..., "sizes": ..., "limits": {"cpu_seconds": ..., "memory_bytes": ...}}
    out  {"document": ..., "plan": ...}  or  {"refusals": [{...}], "allowed": ...}  or  {"exhausted": true}

A file of a few bytes can ask for a grid of 10^12 trials or nest mappings without end; what its check costs is
not known before. The process reads the ledger and writes nothing. It imports no web framework, which would
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
from orchestrator.api.local_sweep import Sweep
from orchestrator.api.planning import planned
from orchestrator.config.networks import layers
from orchestrator.config.strategy import SAMPLERS, SCHEDULERS, most_trials
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver.user_code import account_for, reader_for
from orchestrator.errors import BadInput, Refusal, Unfinished
from trainables.layers import LAYERS
from trainables.registry import Registry
from trainables.tasks import TASKS

MOST_TRIALS = 100_000
"""Most trials of a sweep that is submitted over HTTP."""


@dataclass(frozen=True)
class CheckLimits:
    """What the process of a check may use.

    Attributes:
        cpu_seconds: processor time, the imports included.
        memory_bytes: memory that is written to; what is only mapped does not count.
        seconds: time until its end on a busy machine. A process without memory may wait for ever instead of
            ending.
    """

    cpu_seconds: int = 20
    memory_bytes: int = 2 * 1024**3
    seconds: float = 60.0


class ForeignCode(Exception):
    """Raised for a file that makes the service run code that is not of this package.

    Args:
        refusal: for the sender of the file.
    """

    def __init__(self, refusal: BadInput) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


def check_own(specification: SweepConfig, owner: str, *, plugins: bool) -> None:
    """Check that a specification runs as this service no code but that of this package.

    Args:
        specification: of the sweep.
        owner: in whose name it runs.
        plugins: whether it may name what other installed packages have added; never the code of a user.

    Raises:
        ForeignCode: it has a trainable, or a name that another installed package has added.
        BadInput: its code must run as its owner, and cannot.
    """
    check_network(specification, owner)
    if plugins:
        return
    for where, registry, name in _names(specification):
        package = registry.package(name)
        if package is not None:
            must = "must be a name of this package"
            remedy = "Ask an admin to start `serve` with `--allow-plugins`."
            raise ForeignCode(BadInput(where, must, f"{name}, which {package} has added", remedy))


def check_network(specification: SweepConfig, owner: str) -> None:
    """Check that a specification has no trainable, or one that runs as the account of its owner.

    Raises:
        ForeignCode: it has one, which would run as the service.
        BadInput: it has one that must run as its owner, and cannot.
    """
    if account_for(specification.trainable, owner) is None and specification.trainable is not None:
        must = "must be left out of a file that is sent over HTTP: its code would run as the service"
        remedy = "Run `sweep submit` on the machine of the service, or ask for `serve --code-as-users`."
        raise ForeignCode(BadInput("trainable", must, specification.subject, remedy))


def check_size(specification: SweepConfig) -> None:
    """Check that a search has at most `MOST_TRIALS` trials.

    Raises:
        BadInput: it has more.
    """
    trials = most_trials(specification.document())
    if trials > MOST_TRIALS:
        must = f"must be at most {MOST_TRIALS:,} trials"
        raise BadInput("budget.trials", must, f"{trials:,}", "Split the search into several sweeps.")


def check(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a file, and what it would run; raise a `Refusal` if it may not.

    Raises:
        ForeignCode: it would run other code than that of this package.
    """
    with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
        sweep = _loaded(given, Path(folder))
    specification = sweep.specification
    check_network(specification, given["owner"])
    _check_folder(specification, Path(folder))
    check_size(specification)
    check_own(specification, given["owner"], plugins=given["plugins"])
    sizes = given["sizes"]
    plan = None if sizes is None else asdict(planned(sweep, given["owner"], sizes=sizes))
    return {"document": specification.document(), "plan": plan}


def main() -> None:
    """Check what standard input describes, and print the answer."""
    process_secrets.begin()
    given = json.load(sys.stdin)
    _limit(CheckLimits(**given["limits"]))
    try:
        answer = check(given)
    except ForeignCode as error:
        answer = _refused(error.refusal, allowed=False)
    except Unfinished:
        answer = {"exhausted": True}
    except Refusal as refusal:
        answer = _refused(refusal, allowed=True)
    json.dump(answer, sys.stdout)


def _refused(refusal: Refusal, *, allowed: bool) -> dict[str, Any]:
    return {"refusals": [one.parts() for one in refusal.all()], "allowed": allowed}


def _limit(limits: CheckLimits) -> None:
    for kind, most in (
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_DATA, limits.memory_bytes),
    ):
        resource.setrlimit(kind, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _loaded(given: Mapping[str, Any], folder: Path) -> Sweep:
    file, reader = folder / f"{given['name']}.yaml", reader_for(given["owner"])
    file.touch(mode=0o600)
    file.write_text(given["text"], encoding="utf-8")
    if reader is not None:
        os.chown(file, reader.uid, reader.gid)
        folder.chmod(0o711)
    try:
        return Sweep.load(
            file,
            profile=given["profile"],
            overrides=given["overrides"],
            new=given["new"],
            root=given["root"],
            data=given["data"],
            reader=reader,
        )
    except BadInput as refusal:
        raise BadInput.of_all(
            {**one.parts(), "where": one.where.replace(f"{folder}/", "")} for one in refusal.all()
        ) from None


def _check_folder(specification: SweepConfig, sent: Path) -> None:
    """Check that a file that was sent says where its code is, which is not beside it."""
    trainable = specification.trainable
    if trainable is not None and Path(trainable.folder).is_relative_to(sent):
        must = "must be the absolute path of a folder on the machine of the service"
        raise BadInput("trainable.folder", must, "none", "Write folder: /home/ada/digits, for example.")


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
