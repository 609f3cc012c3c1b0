"""Cost of static choices, counted outside the driver, which must not import JAX."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from orchestrator import process_secrets
from orchestrator.training.engine_cache import configure
from trainables.cost import Cost
from trainables.data.task import Signature
from trainables.errors import Refusal
from trainables.trial import TrialSettings


def costs(settings: Mapping[str, TrialSettings], signature: Signature, *, compiled: bool) -> dict[str, Cost]:
    """Return the cost of each trial's static choice, by name.

    With `compiled`, a training step of each choice is compiled and its work counted too.
    """
    # Imports JAX, which reads environment variables.
    from trainables.counting import cost

    return {name: cost(one, signature, compiled=compiled) for name, one in settings.items()}


def work(settings: Mapping[str, TrialSettings], signature: Signature, compilations: str) -> dict[str, Cost]:
    """Return the cost of each trial's static choice, with the FLOPs of a training step, by name."""
    configure(compilations)
    return costs(settings, signature, compiled=True)


def check_names(answer: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Check that another process has answered for the given settings.

    Raises:
        Refusal: The answer has other names.
    """
    if answer.keys() != settings.keys():
        must, got = f"must be about {', '.join(settings)}", ", ".join(map(str, answer)) or "none"
        raise Refusal("the answer of a count", must, got, "Run the same command again.")


def _answered(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    settings = {name: TrialSettings.from_document(one) for name, one in document["settings"].items()}
    signature = Signature.from_document(document["signature"])
    found = costs(settings, signature, compiled=document["compiled"])
    return {name: cost.document() for name, cost in found.items()}


if __name__ == "__main__":
    process_secrets.begin()
    print(json.dumps(_answered(json.load(sys.stdin))))  # noqa: T201 - the answer of this process
