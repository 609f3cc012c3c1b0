"""A compilation cache for tests that build several engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest


@pytest.fixture(scope="package")
def compilation_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Cache compiled programs on disk for later engines, as the workers of a machine do."""
    folder: Path = tmp_path_factory.mktemp("compilations")
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update(names[0], str(folder))
    jax.config.update(names[1], 0)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
