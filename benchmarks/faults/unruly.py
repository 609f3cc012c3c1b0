"""A layer that fails on request; the service discovers it like the layer of any installed package."""

from __future__ import annotations

import os
import resource
import time
from typing import Any

import numpy as np
import psutil
from jax import Array

from trainables.layers.lds import LDS
from trainables.settings import LayerSettings, Option

SPARE = 1 << 30


class Unruly(LDS):
    """An LDS that raises, hangs, allocates memory without end, ends its process, or returns NaN."""

    settings = LayerSettings(
        summary="Unruly: an LDS that fails on request.",
        options={
            "mischief": Option(
                "none",
                "The kind of failure.",
                choices=("none", "nothing", "raise", "nan", "hang", "memory", "exit"),
            )
        },
    )

    def __init__(self, *sizes: int, mischief: str = settings.default("mischief"), **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.mischief = mischief
        if mischief == "raise":
            raise RuntimeError("a bug in a layer")
        if mischief == "hang":
            time.sleep(100_000)
        if mischief == "memory":
            _take_all_memory()
        if mischief == "exit":
            os._exit(1)

    def skip(self, u: Array) -> Array:
        """Return the skip term of an LDS, or NaN."""
        return super().skip(u) * (np.nan if self.mischief == "nan" else 1)


def _take_all_memory() -> None:
    """Allocate until this process reaches its own address-space limit: the machine may be shared."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + SPARE, before[1]))
    taken: list[np.ndarray] = []
    try:
        while True:
            taken.append(np.ones(1 << 23))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
