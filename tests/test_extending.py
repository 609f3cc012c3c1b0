"""The package of docs/extending.md is found by its entry points and passes the contract tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from trainables.errors import Refusal
from trainables.extensions import Registry

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text()


def files() -> dict[str, str]:
    """Return the files that the page shows under a heading of their name."""
    blocks = re.findall(r"^## `(\S+)`$.*?^```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return dict(blocks)


def installed(folder: Path, entry_points: dict[str, dict[str, str]], modules: dict[str, str]) -> Path:
    """Lay a package out as pip would."""
    for name, content in modules.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    about = folder / "bits-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: bits\nVersion: 1.0\n")
    lines = [
        line
        for group, points in entry_points.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def bits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH with the page's package installed."""
    shown = files()
    project = tomllib.loads(shown.pop("pyproject.toml"))["project"]
    shown["bits/__init__.py"] = ""
    return installed(tmp_path_factory.mktemp("site"), project["entry-points"], shown)


def run(bits: Path, *words: str) -> str:
    """Run a Python command beside the installed package; return its output."""
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


def test_the_package_passes_the_contract_tests(bits: Path) -> None:
    out = run(
        bits,
        *("-m", "pytest", "tests/contracts/test_tasks.py", "tests/trainables/layers/test_contract.py"),
        *("-k", "parity or (fading and not long_sequences)"),
    )
    passed = int(re.search(r"(\d+) passed", out)[1])  # type: ignore[index]
    assert passed >= 11


def test_the_file_of_the_page_is_valid(bits: Path, tmp_path: Path) -> None:
    space = tmp_path / "parity.yaml"
    space.write_text(re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[-1])
    out = run(bits, "-m", "orchestrator.sweep", "validate", str(space), "--data", str(tmp_path))
    assert "random rows of 16 bits" in out
    assert "decay_init.min" in out


def whole(found: object) -> int:
    if not isinstance(found, int):
        raise TypeError("it must be a whole number")
    return found


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Registry[int]]:
    def make(modules: dict[str, str], **points: str) -> Registry[int]:
        monkeypatch.syspath_prepend(str(installed(tmp_path, {"numbers": points}, modules)))
        return Registry({"one": 1}, "numbers", whole)

    return make


def test_entries_are_loaded_when_they_are_named(registry: Callable[..., Registry[int]]) -> None:
    found = registry({"counted.py": "two = 2"}, two="counted:two")
    assert list(found) == ["one", "two"]
    assert len(found) == 2
    assert "two" in found
    assert "three" not in found
    assert "counted" not in sys.modules
    assert found["two"] == 2
    assert "counted" in sys.modules
    with pytest.raises(KeyError):
        found["three"]


@pytest.mark.parametrize(
    ("module", "value", "got"),
    [
        ("import nothing_of_the_kind", "broken:two", "ModuleNotFoundError"),
        ("two = 'zwei'", "broken:two", "it must be a whole number"),
        ("two = 2", "broken:three", "AttributeError"),
        ("raise RuntimeError('at import')", "broken:two", "RuntimeError: at import"),
    ],
)
def test_a_broken_package_is_named_when_its_entry_is(
    registry: Callable[..., Registry[int]], module: str, value: str, got: str
) -> None:
    found = registry({"broken.py": module}, two=value)
    sys.modules.pop("broken", None)
    assert found["one"] == 1
    with pytest.raises(Refusal, match=got) as refused:
        found["two"]
    assert str(refused.value).startswith(f"entry point numbers: two = {value} of bits: must load, got ")


def test_a_name_that_is_taken_is_refused(registry: Callable[..., Registry[int]]) -> None:
    found = registry({"counted.py": "one = 11"}, one="counted:one")
    with pytest.raises(Refusal, match="must have a name of its own, got 'one'"):
        list(found)
