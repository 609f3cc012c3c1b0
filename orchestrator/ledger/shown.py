"""Which metrics of a report people are shown, where all of them would be too many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OF_TRAINING = frozenset({"learning_rate", "tokens_per_second"})
"""Metrics in every report of a network or a program that tell how it was trained, and not how well."""


def unshown_metrics(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the metrics that are left out where the reports of a sweep are shown.

    Nothing is left out of what a function or a command has reported, nor what decides about trials.

    Args:
        document: of the sweep.
    """
    if {"function", "command"} & document.get("trainable", {}).keys():
        return frozenset()
    objectives = {name for names in document.get("objective", {}).values() for name in names}
    return OF_TRAINING - objectives - (document.get("constraints") or {}).keys()
