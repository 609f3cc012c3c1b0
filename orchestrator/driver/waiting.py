"""The process that imports everything that a driver needs, and then waits for the sweep that it is to drive.

`orchestrator.driver.ready` starts it and describes what is exchanged. It ends with the service that has
started it, unless it has taken a sweep.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from orchestrator import concealment
from orchestrator.driver.ready import READY, TAKEN
from orchestrator.provenance import code_digest
from orchestrator.schedule import environment
from orchestrator.storage.paths import Paths
from orchestrator.tracking import child

NEEDED = (
    *("orchestrator.cli.service", "orchestrator.driver.execution"),
    *("optuna.importance", "plotly.graph_objects", "sqlalchemy.dialects.sqlite"),
)
"""Modules that a driver imports in the course of a sweep, some of them only when it needs them."""


def wait(root: Path, run: Callable[[Sequence[str]], int], modules: Iterable[str] = NEEDED) -> int:
    """Import, announce it, wait, and run the command line that comes; return its exit code.

    Args:
        root: folder of everything that sweeps write.
        run: runs a command line.
        modules: to be imported.
    """
    concealment.begin()
    code, answers = code_digest(), os.dup(1)
    os.dup2(2, 1)  # what an import prints is no answer
    environment.prepare(Paths(root).token)
    for name in modules:
        import_module(name)
    child.prepare()
    if code_digest() != code:
        return 0  # it has changed meanwhile: the modules need not fit together
    gc.collect()
    gc.freeze()  # what is imported stays: no later collection need look at it
    os.write(answers, READY)
    line = sys.stdin.readline()
    if not line or (order := json.loads(line))["code"] != code:
        child.discard()
        return 0
    os.write(answers, TAKEN)
    os.close(answers)
    return _become(order, run)


def _become(order: Mapping[str, Any], run: Callable[[Sequence[str]], int]) -> int:
    """Run the command line of an order with its log and its variables, as a process of its own would."""
    log = Path(order["log"])
    log.parent.mkdir(parents=True, exist_ok=True)
    for descriptor, file, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, log, os.O_WRONLY | os.O_APPEND | os.O_CREAT),
    ):
        opened = os.open(file, flags, 0o666)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.dup2(1, 2)
    os.environ.update(order["variables"])
    sys.argv = ["sweep", *order["arguments"]]
    try:
        return run(order["arguments"])
    except Exception:  # noqa: BLE001 - printed as Python prints it, because `os._exit` would not
        traceback.print_exc()
        return 1
    finally:
        child.discard()
