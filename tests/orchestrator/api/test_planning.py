"""The lines that `validate` prints about a sweep."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from orchestrator import Sweep
from orchestrator.api.planning import planned
from orchestrator.config.strategy import SAMPLERS
from tests.orchestrator.session.sessions import SPACE


@pytest.mark.parametrize("scheduler", ["none", "asha", "hyperband"])
@pytest.mark.parametrize("sampler", ["tpe", "gp", "cmaes", "nsgaii", "random", "qmc"])
def test_a_sampler_that_cannot_use_stopped_trials_is_a_warning(
    tmp_path: Path, sampler: str, scheduler: str
) -> None:
    declared = SAMPLERS.settings(sampler)
    if missing := [package for package in declared.packages if find_spec(package) is None]:
        pytest.skip(f"needs {', '.join(missing)}, an extra of the package")
    file = tmp_path / "space.yaml"
    text = SPACE.replace("BUDGET", "16").replace("random: {seed: 3}", f"{sampler}: {{}}")
    file.write_text(text.replace("none: {}", f"{scheduler}: {{}}"))
    sweep = Sweep.load(file, root=tmp_path / "runs", profile=None)
    warnings = [line for line in planned(sweep, sizes=False).lines if line.startswith("warning: ")]
    remedy = "Use `scheduler: none`, or `sampler: tpe`."
    is_blind = sampler in {"gp", "cmaes", "nsgaii"} and scheduler != "none"
    assert warnings == ([f"warning: {sampler} {declared.under_stopping}. {remedy}"] if is_blind else [])
