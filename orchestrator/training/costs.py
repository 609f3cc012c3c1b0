"""What static choices take, counted in a Ray task or in a process of its own: neither may be a driver."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator import concealment
from orchestrator.training.engine_cache import configure
from trainables.cost import Cost
from trainables.data.task import Signature
from trainables.trial import TrialSettings


def costs(settings: Iterable[TrialSettings], signature: Signature, *, compiled: bool) -> list[Cost]:
    """Return what the static choice of each trial takes.

    Args:
        settings: of the trials.
        signature: of their task.
        compiled: whether to compile a training step of each and count its work too.
    """
    # It imports JAX, which reads environment variables.
    from trainables.counting import cost

    return [cost(one, signature, compiled=compiled) for one in settings]


def work(settings: Iterable[TrialSettings], signature: Signature, compilations: str) -> list[Cost]:
    """Return what the static choice of each trial takes, the work of a training step included.

    Args:
        settings: of the trials.
        signature: of their task.
        compilations: folder of JAX's persistent compilation cache.
    """
    configure(compilations)
    return costs(settings, signature, compiled=True)


def _answered(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    settings = map(TrialSettings.from_document, document["settings"])
    signature = Signature.from_document(document["signature"])
    return [cost.document() for cost in costs(settings, signature, compiled=document["compiled"])]


if __name__ == "__main__":
    concealment.begin()
    print(json.dumps(_answered(json.load(sys.stdin))))  # noqa: T201 - the answer of this process
