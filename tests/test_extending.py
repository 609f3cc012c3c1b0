"""The package of docs/extending.md is discovered by its entry points and passes the contract tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.packages import installed

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text()


def files() -> dict[str, str]:
    """Return the files that the page shows under a heading of their name."""
    blocks = re.findall(r"^## `(\S+)`$.*?^```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return dict(blocks)


@pytest.fixture(scope="module")
def bits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for PYTHONPATH with the page's package installed."""
    shown = files()
    project = tomllib.loads(shown.pop("pyproject.toml"))["project"]
    shown["bits/__init__.py"] = ""
    return installed(tmp_path_factory.mktemp("site"), project["entry-points"], shown, "bits")


def run(bits: Path, *words: str) -> str:
    """Run a Python command with the installed package on its path; return its output."""
    environment = {**os.environ, "PYTHONPATH": str(bits), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_the_package_passes_the_contract_tests(bits: Path) -> None:
    out = run(
        bits,
        *("-m", "pytest", "-vv", "tests/contracts", "tests/trainables/layers/test_contract.py"),
        *("tests/orchestrator/config/test_declarations.py", "-k"),
        "more_ones or (fading and not long_sequences) or inherit or threshold",
    )
    for name in ("more_ones", "fading", "inherit", "threshold"):
        assert len(re.findall(rf"\[[^]]*\b{name}\b[^]]*\] PASSED", out)) >= 4, name


def test_the_file_of_the_page_is_valid(bits: Path, tmp_path: Path) -> None:
    space = tmp_path / "more_ones.yaml"
    space.write_text(re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[-1])
    out = run(bits, "-m", "orchestrator.sweep", "validate", str(space), "--data", str(tmp_path))
    assert "random rows of 17 bits" in out
    assert "decay_init.min" in out
    assert "sampler: inherit; scheduler: threshold" in out
