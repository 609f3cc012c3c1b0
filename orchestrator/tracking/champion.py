"""Which version of a registered model people get who ask for the champion."""

from __future__ import annotations

from collections.abc import Mapping


def succeeds(new: Mapping[str, str], present: Mapping[str, str]) -> bool:
    """Tell whether a version takes the alias over, given the tags of both.

    What was trained on published data stays before what was not, so that a laptop's stand-in never takes a
    real model's place. On the same data the better one by the same metric is first. Two that cannot be
    compared go by time.
    """
    if new["data.comparable"] != present["data.comparable"]:
        return new["data.comparable"] == "True"
    comparable = all(new[name] == present[name] for name in ("data.digest", "metric"))
    if comparable and new["value"] != present["value"]:
        ahead = float(new["value"]) - float(present["value"])
        return ahead > 0 if new["direction"] == "maximize" else ahead < 0
    return int(new["ended_ms"]) >= int(present["ended_ms"])
