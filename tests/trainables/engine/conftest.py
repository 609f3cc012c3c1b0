"""Engines that several tests share, because most of a test's time is compilation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from tests.trainables.toy import toy_data, toy_trial
from trainables.engine import Engine


@pytest.fixture(scope="package", autouse=True)
def _compilation_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Cache compiled programs on disk for later engines, as the workers of a machine do."""
    folder: Path = tmp_path_factory.mktemp("compilations")
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update(names[0], str(folder))
    jax.config.update(names[1], 0)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture(scope="package")
def single() -> Engine:
    """Return an engine of one slot, which every test must leave empty."""
    return Engine(toy_trial(), toy_data())


@pytest.fixture(scope="package")
def fused() -> Engine:
    """Return an engine of four slots in one program, which every test must leave empty."""
    return Engine(toy_trial(), toy_data(), slots=4, stacked=True)
