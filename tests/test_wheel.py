"""The built wheel holds everything that the installed packages need at run time."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("orchestrator", "trainables")
REPORT = """
import sys
from pathlib import Path
import orchestrator
assert Path(orchestrator.__file__).is_relative_to(sys.argv[1]), orchestrator.__file__
sys.path.append(sys.argv[2])
from tests import sweeps
from orchestrator.ledger.ledger import Ledger
from orchestrator.report import report
paths = sweeps.filled(Path(sys.argv[1]) / "mlruns")
print(report.write(Ledger.open(paths.ledger_url), sweeps.SWEEP_ID, Path(sys.argv[1]) / "report").html)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the sources, without a network."""
    source = tmp_path_factory.mktemp("source")
    ignored = shutil.ignore_patterns("__pycache__")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*build, "--wheel-dir", str(folder), str(source)], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    files = {
        str(path.relative_to(ROOT))
        for name in PACKAGES
        for path in (ROOT / name).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert files <= set(zipfile.ZipFile(wheel).namelist())


def test_a_report_is_written_by_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    """The wheel contains the migrations of the ledger and the templates of the report."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", REPORT, str(tmp_path), str(ROOT)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).stat().st_size > 1_000_000
