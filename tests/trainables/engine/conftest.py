"""Engines that several tests share: most of a test's time is compilation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from tests.trainables.toy import toy_data, toy_trial
from trainables.engine import Engine


@pytest.fixture(scope="package", autouse=True)
def _compilations_kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let a second engine of the same program find it compiled, as the workers of a machine do."""
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
    """An engine of one slot, which a test leaves empty."""
    return Engine(toy_trial(), toy_data())


@pytest.fixture(scope="package")
def fused() -> Engine:
    """An engine of four slots in one program for the same trials, which a test leaves empty."""
    return Engine(toy_trial(), toy_data(), slots=4, stacked=True)
