"""Compilation of the device calls of an engine, and its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any

import jax


class Compiler:
    """Compiles each program once; `seconds` is the wall-clock time spent on it in all."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._programs: dict[Hashable, Any] = {}

    def get(
        self,
        key: Hashable,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        *,
        donate: tuple[int, ...] = (),
        options: dict[str, Any] | None = None,
    ) -> Any:
        """Return the program of a key, compiled at its first use.

        Args:
            key: Key of the program.
            function: Pure function.
            arguments: Arguments with the shapes and types of every later call.
            donate: Positions of the arguments whose memory the results may reuse.
            options: Options of XLA, for this program.
        """
        if key not in self._programs:
            began = time.perf_counter()
            lowered = jax.jit(function, donate_argnums=donate).lower(*arguments)
            self._programs[key] = lowered.compile(compiler_options=options)
            self.seconds += time.perf_counter() - began
        return self._programs[key]

    def drop(self, key: Hashable) -> None:
        """Forget a program, and free the memory it holds."""
        self._programs.pop(key, None)
