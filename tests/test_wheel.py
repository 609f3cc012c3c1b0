"""The built wheel holds everything that the installed packages need at run time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from orchestrator.api.templates import CLUSTERS

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
from orchestrator.report import history, report_files
paths = sweeps.filled(Path(sys.argv[1]) / "mlruns")
found = history.read(Ledger.open(paths.ledger_url), sweeps.SWEEP_ID)
print(report_files.write_history(found, Path(sys.argv[1]) / "report").html)
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
    return _built(source, folder)


def _built(source: Path, folder: Path) -> Path:
    """Build the wheel of a folder of sources into another folder, without a network."""
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    build = [sys.executable, "-m", "pip", "wheel", *options, str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    files = {
        str(path.relative_to(ROOT))
        for name in PACKAGES
        for path in (ROOT / name).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert files <= set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_holds_search_spaces_and_cluster_files(wheel: Path) -> None:
    """In a checkout they are links, which `Path.rglob` does not follow."""
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {f"orchestrator/files/search_spaces/{path.name}" for path in ROOT.glob("search_spaces/*.yaml")}
    expected |= {f"orchestrator/files/cluster/{name}" for kind in CLUSTERS.values() for name in kind}
    assert len(expected) > 20
    assert expected <= names


@pytest.mark.slow
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
    assert Path(done.stdout.strip()).stat().st_size > 600_000, "plotly.js is in the page"


@pytest.mark.slow
def test_a_sweep_runs_where_only_the_wheel_is_installed(wheel: Path, tmp_path: Path) -> None:
    """A new user without a checkout: the dependencies come from the environment of the tests."""
    environment, folder = tmp_path / "venv", tmp_path / "home"
    folder.mkdir()
    venv.create(environment, symlinks=True)
    (installed,) = environment.glob("lib/python*/site-packages")
    python, sweep = environment / "bin" / "python", environment / "bin" / "sweep"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--no-index", "--no-compile", str(wheel)], check=True)
    # A folder named in a .pth file comes after the wheel, and its own .pth files are not read: among them is
    # the one of this checkout.
    (installed / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    # Ray's workers run the Python of the command that starts Ray, so it must be that of the wheel.
    _, *lines = Path(sysconfig.get_path("scripts"), "ray").read_text().splitlines()
    ray = environment / "bin" / "ray"
    ray.write_text("\n".join([f"#!{python}", *lines, ""]))
    ray.chmod(0o755)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        variables = {"PATH": f"{environment / 'bin'}:/usr/bin:/bin", "HOME": str(folder), "SWEEP_WARM": "0"}
        variables |= {"SWEEP_RAY_LINGER": "0", "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
        return subprocess.run(
            [str(sweep), *words], cwd=folder, env=variables, capture_output=True, text=True, check=False
        )

    begun = run("init", "copy", "spaces")
    assert begun.returncode == 0, begun.stderr
    small = [
        "budget.trials=2",
        "training.steps=20",
        "training.interval=10",
        "confirm.seeds=0",
        "resources.gpu=0",
    ]
    small += ["data.delay=10", "data.examples=200", "model.d_state=20", "evaluate.examples=20"]
    settings = [word for change in small for word in ("--set", change)]
    done = run("spaces/copy.yaml", *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Chosen: copy-" in done.stdout
    listed = run("list", "--json")
    assert '"COMPLETE"' in listed.stdout


SCRIPT = """
import sweep_client

trial = sweep_client.trial(learning_rate=0.1, layers=2, name="a")
for step in range(trial.start, trial.steps, trial.interval):
    trial.report(step + trial.interval, {"val/loss": trial.params["learning_rate"]}, checkpoint=trial.folder)
print(trial.params, trial.seed)
"""


@pytest.mark.slow
def test_the_client_is_a_package_by_itself(tmp_path: Path) -> None:
    """With it alone a script runs by hand: it prints what it would report, and takes values like options."""
    source = tmp_path / "source"
    shutil.copytree(ROOT / "orchestrator" / "scripts" / "client", source)
    shutil.rmtree(source / "__pycache__", ignore_errors=True)
    client = _built(source, tmp_path / "wheels")
    with zipfile.ZipFile(client) as archive:
        files = [name for name in archive.namelist() if ".dist-info/" not in name]
        metadata = next(
            archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA")
        )
    modules = ("__init__", "keras", "lightning", "torch", "transformers")
    assert files == [f"sweep_client/{name}.py" for name in modules]
    assert "Requires-Dist" not in metadata
    venv.create(tmp_path / "empty")
    python = tmp_path / "empty" / "bin" / "python"
    (packages,) = (tmp_path / "empty" / "lib").glob("python*/site-packages")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*install, "--target", str(packages), str(client)], check=True, capture_output=True)
    (tmp_path / "train.py").write_text(SCRIPT)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SWEEP_", "PYTHON"))}
    done = subprocess.run(
        [python, "train.py", "--learning-rate", "0.5", "--layers=3", "name=b", "--verbose"],
        cwd=tmp_path,
        env={**kept, "SWEEP_STEPS": "200"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == [
        '{"step": 100, "metrics": {"val/loss": 0.5}, "checkpoint": "."}',
        '{"step": 200, "metrics": {"val/loss": 0.5}, "checkpoint": "."}',
        "{'learning_rate': 0.5, 'layers': 3, 'name': 'b'} 0",
    ]
