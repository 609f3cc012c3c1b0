"""Every folder of examples/ runs as its README says, and stays short."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.commands import ROOT, Commands, finish

EXAMPLES = ROOT / "examples"
FOLDERS = sorted(path for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__")

pytestmark = pytest.mark.end_to_end


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_example_is_short_and_listed(folder: Path) -> None:
    files = [path for path in folder.iterdir() if path.is_file()]
    assert sum(len(path.read_text().splitlines()) for path in files) <= 40
    assert f"[{folder.name}]({folder.name}/)" in (EXAMPLES / "README.md").read_text()


def test_there_is_one_example_of_each_way() -> None:
    assert len(FOLDERS) == 7


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("file", "trials"),
    [
        ("scikit-learn-function/digits.yaml", 8),
        ("pytorch-command/sine.yaml", 6),
        ("jax-program/digits.yaml", 8),
        ("quarter-gpu/digits.yaml", 4),
        ("torchrun/sine.yaml", 3),
    ],
)
def test_a_file_is_a_sweep_that_completes(commands: Commands, file: str, trials: int) -> None:
    if file.startswith(("pytorch", "torchrun")) and importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch, which is not one of the locked packages")
    code, printed = commands.run(str(EXAMPLES / file), timeout=550)
    assert code == 0, printed
    (sweep,) = commands.ledger.sweeps()
    found = commands.ledger.trials(sweep.id)
    assert len(found) == trials
    assert {trial.state for trial in found} <= {"COMPLETE", "PRUNED"}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_example_in_python_prints_its_best_trial(commands: Commands) -> None:
    code, printed = finish(_script("python-api/search.py", commands, str(commands.root)), 550)
    assert code == 0, printed
    assert re.search(r"best: small-\S+, 0\.\d+ on validation", printed), printed


@pytest.fixture
def service(commands: Commands) -> Iterator[tuple[str, str]]:
    """Yield the address of a service, and the token of a member."""
    server = commands.start("serve", "--http", "0", "--stop-drivers")
    assert server.stdout is not None
    address = next(
        found[0] for line in server.stdout if (found := re.search(r"http://127\.0\.0\.1:\d+", line))
    )
    code, printed = commands.run("user", "add", "ada")
    assert code == 0, printed
    yield address, printed.split()[-1]
    server.terminate()
    finish(server, 60)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_example_of_a_service_fetches_a_report(
    commands: Commands,
    service: tuple[str, str],
) -> None:
    address, token = service
    process = _script("remote-service/submit.py", commands, SWEEP_URL=address, SWEEP_TOKEN=token)
    code, printed = finish(process, 550)
    assert code == 0, printed
    assert "The sweep is COMPLETE." in printed
    assert "<html" in (commands.folder / "report.html").read_text()


def _script(name: str, commands: Commands, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start a script of an example in the folder of a test."""
    own = {"PYTHONPATH": str(ROOT), "SWEEP_ROOT": str(commands.root), "SWEEP_TEST_MARK": commands.mark}
    own |= {"SWEEP_DATA": str(commands.shared / "data"), "SWEEP_WARM": "0"}
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=commands.folder,
        env={**os.environ, **own, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    commands.processes.append(process)
    return process
