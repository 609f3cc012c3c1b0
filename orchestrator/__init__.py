"""Hyperparameter sweeps that lose nothing: one search-space file, one command or one call.

>>> from orchestrator import Sweep
>>> Sweep.load("search_spaces/listops.yaml", profile="laptop").id
'listops-laptop-...'
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any


def search_installed_modules_alone() -> None:
    """Exclude the working folder from the imports of this process and its children of this package.

    `python -m` searches the working folder first, and a `trainables.py`, `yaml.py` or `json.py` in it would
    be taken for a module of this package or of a library.
    """
    os.environ["PYTHONSAFEPATH"] = "1"
    parent = str(Path(__file__).absolute().parents[1])
    if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
        del sys.path[0]
    if parent not in sys.path:  # it is not installed, and was found in the working folder
        sys.path.append(parent)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), parent]))


if sys.argv[:1] == ["-m"] and any(word.startswith(f"{__name__}.") for word in sys.orig_argv):
    # `python -m` has not yet found the module that it is to run, one of this package.
    search_installed_modules_alone()

from orchestrator.errors import (  # noqa: E402 - first the path
    BadData,
    BadInput,
    Busy,
    Damaged,
    DamagedCheckpoint,
    Exit,
    ForeignAnswer,
    NoCluster,
    NoDatabase,
    NoGpu,
    NoServer,
    NoSpace,
    NoStore,
    NotAllowed,
    NotFound,
    NotSignedIn,
    OverQuota,
    Refusal,
    StaleRevision,
    TooManyRequests,
    Unfinished,
    WrongState,
)

if TYPE_CHECKING:
    from orchestrator.api.clusters import available
    from orchestrator.api.local_sweep import Sweep
    from orchestrator.api.local_trial import Trial
    from orchestrator.api.maintenance import check, collect_garbage, recover
    from orchestrator.api.priorities import move, queue, quota
    from orchestrator.api.serving import serve, submit
    from orchestrator.api.status import status, sweeps
    from orchestrator.client.statuses import Status
    from orchestrator.driver.log import Observer
    from orchestrator.session.board import Progress

__all__ = [
    "BadData",
    "BadInput",
    "Busy",
    "Damaged",
    "DamagedCheckpoint",
    "Exit",
    "ForeignAnswer",
    "NoCluster",
    "NoDatabase",
    "NoGpu",
    "NoServer",
    "NoSpace",
    "NoStore",
    "NotAllowed",
    "NotFound",
    "NotSignedIn",
    "Observer",
    "OverQuota",
    "Progress",
    "Refusal",
    "StaleRevision",
    "Status",
    "Sweep",
    "TooManyRequests",
    "Trial",
    "Unfinished",
    "WrongState",
    "available",
    "check",
    "collect_garbage",
    "move",
    "queue",
    "quota",
    "recover",
    "serve",
    "status",
    "submit",
    "sweeps",
]

_MODULES = {
    "Observer": "driver.log",
    "Progress": "session.board",
    "Status": "client.statuses",
    "Sweep": "api.local_sweep",
    "Trial": "api.local_trial",
    "available": "api.clusters",
    "check": "api.maintenance",
    "collect_garbage": "api.maintenance",
    "move": "api.priorities",
    "queue": "api.priorities",
    "quota": "api.priorities",
    "recover": "api.maintenance",
    "serve": "api.serving",
    "submit": "api.serving",
    "status": "api.status",
    "sweeps": "api.status",
}
"""Modules of this package by the names they define, imported when a name is first used."""


def __getattr__(name: str) -> Any:
    """Import a name of the API on first use, so that workers and quick verbs do not wait for it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"orchestrator.{_MODULES[name]}")
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("orchestrator."):
            raise
        if name == "Sweep":
            return import_module("orchestrator.client.http").ClientSweep
        message = f"{name} needs the ledger, and only the client is installed here: install rotrnn-sweeps"
        raise ImportError(f"{message} instead of rotrnn-sweeps-client.", name=error.name) from None
    return getattr(module, name)
