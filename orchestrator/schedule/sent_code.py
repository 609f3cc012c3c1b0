"""The code folder of a trainable on a cluster: a driver sends it with Ray, and a worker finds it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

import ray

from orchestrator.assignment import Assignment
from trainables.sources import digest_of, is_environment, module_in
from trainables.trial import ProgramSettings, ScriptSettings, Settings, TrialSettings

if TYPE_CHECKING:  # workers do not need the packages that read configuration files
    from orchestrator.config.trainable import Trainable

AnySettings = TypeVar("AnySettings", bound=Settings)

MOST = 100 << 20
"""Maximum size of a folder that is sent, in bytes; Ray keeps it in the memory of the head."""

_LEFT_OUT = ("__pycache__", "mlruns", "node_modules")
_HIDDEN = ".?*"
"""Pattern, as in `.gitignore`, of hidden files, which are not sent. `.*` would also match `.`, the folder
itself."""


def folder_to_send(trainable: Trainable | None) -> Path | None:
    """Return the code folder that trials need on every machine, or None if their code is installed there."""
    if trainable is None:
        return None
    if isinstance(trainable.target, str):
        module = trainable.target.partition(":")[0]
        if not module.endswith(".py") and not module_in(Path(trainable.folder), module):
            return None
    return Path(trainable.folder)


def size_of(folder: Path) -> int:
    """Return the size of the files that are sent, in bytes; counting stops above `MOST`."""
    total = 0
    for path, below, names in os.walk(folder):
        below[:] = [name for name in below if not _is_left_out(Path(path, name))]
        total += sum(Path(path, name).lstat().st_size for name in names)
        if total > MOST:
            break
    return total


def runtime_environment(folder: Path) -> dict[str, Any]:
    """Return the part of Ray's runtime environment that sends a folder.

    The folder is sent as a module and not as the working directory: then only its name is on the path of the
    workers, and none of its files can hide a module that they import.
    """
    return {"py_modules": [str(folder)], "excludes": [_HIDDEN, *_LEFT_OUT, *_environments(folder)]}


def _environments(folder: Path) -> Iterator[str]:
    """Yield the virtual environments below a folder, as patterns of `.gitignore`."""
    for path, below, _ in os.walk(folder):
        for name in [name for name in below if is_environment(Path(path, name))]:
            yield f"/{Path(path, name).relative_to(folder).as_posix()}"
        below[:] = [name for name in below if not _is_left_out(Path(path, name))]


def _is_left_out(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name in _LEFT_OUT or is_environment(folder)


def on_this_machine(assignment: Assignment) -> Assignment:
    """Return an assignment whose settings name the code folder on this worker's machine."""
    return replace(assignment, settings=with_folder(assignment.settings))


def with_folder(settings: AnySettings) -> AnySettings:
    """Return settings that name the code folder on this worker's machine."""
    if isinstance(settings, TrialSettings):
        return settings
    target = _target_of(settings)
    return replace(settings, folder=found(settings.folder, target))


def _target_of(settings: ProgramSettings | ScriptSettings) -> str | tuple[str, ...]:
    if isinstance(settings, ProgramSettings):
        return settings.program
    return settings.function if settings.function is not None else settings.command or ()


@cache  # a worker of a cluster runs attempts of one sweep only, and ends with its driver
def found(folder: str, target: str | tuple[str, ...]) -> str:
    """Return the path of a code folder on this worker's machine.

    If this machine has the same path with the same code, as on a shared disk, that path is used, else the
    copy that the driver has sent.

    Args:
        folder: Path on the driver's machine.
        target: Target, as in `digest_of`.
    """
    sent = _received(Path(folder).name)
    if sent is None or digest_of(target, Path(folder)) == digest_of(target, sent):
        return folder
    return str(sent)


def _received(name: str) -> Path | None:
    """Return the copy of the folder that the driver of this worker has sent, or None."""
    sent = ray.get_runtime_context().runtime_env.get("py_modules") or ()
    packages = {PurePosixPath(uri).stem for uri in sent}
    return next((Path(entry, name) for entry in sys.path if Path(entry).name in packages), None)
