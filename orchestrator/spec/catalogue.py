"""The tasks and layers that a search-space file may name."""

from __future__ import annotations

from collections.abc import Mapping

from trainables.settings import LAYER_SETTINGS, LayerSettings, Option

try:
    from trainables.tasks import TASKS as _TASKS
except ImportError:
    _TASKS = {}


class _Stub:
    metric = "accuracy"
    options: Mapping[str, Option] = {"length": Option(4000, "Length.", at_least=1)}


def tasks():  # noqa
    return {"retrieval": _Stub, "listops": _Stub, **_TASKS}


def layers() -> Mapping[str, LayerSettings]:
    return LAYER_SETTINGS
