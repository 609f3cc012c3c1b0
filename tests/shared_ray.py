"""Ray clusters of tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.machines import joining
from orchestrator.machines.head import RUNTIME, runtime_folder

ALLOWED = False
"""Does the test that runs have the marker `ray`?"""


@contextmanager
def own_ray(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the environment variables of processes that share a Ray of their own; end it on exit.

    Args:
        folder: Folder of the record and of all files of Ray; its path must be short.
    """
    assert ALLOWED, "This test starts Ray: mark it with pytest.mark.ray"
    with variables_of(folder) as variables:
        yield variables


@contextmanager
def variables_of(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the variables of `own_ray`, whether or not the test that runs may start Ray."""
    try:
        yield {RUNTIME: str(folder), joining.LINGER: "600", "RAY_TMPDIR": str(folder)}
    finally:  # it would stay for ten minutes after a test that fails
        with _environment(folder):
            joining.end_shared_ray()


def runtime_folder_of(folder: Path) -> Path:
    """Return the runtime folder of processes that have the variables of `own_ray`."""
    with _environment(folder):
        return runtime_folder()


@contextmanager
def _environment(folder: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(RUNTIME, str(folder))
        yield
