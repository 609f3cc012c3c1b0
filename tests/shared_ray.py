"""A Ray of their own for the processes of some tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.machines import joining
from orchestrator.machines.head import RUNTIME, runtime_folder


@contextmanager
def own_ray(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the environment variables of processes that share a Ray of their own; end it on exit.

    Args:
        folder: for the record and all files of Ray; its path must be short.
    """
    try:
        yield {RUNTIME: str(folder), joining.LINGER: "600", "RAY_TMPDIR": str(folder)}
    finally:  # it would stay for ten minutes after a test that fails
        with _environment(folder):
            joining.end_shared_ray()


def runtime_folder_of(folder: Path) -> Path:
    """Return the runtime folder of the processes that have the variables of `own_ray`."""
    with _environment(folder):
        return runtime_folder()


@contextmanager
def _environment(folder: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(RUNTIME, str(folder))
        yield
