"""No verb imports what it does not need: reading a ledger needs no Ray, and a remote service no ledger."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests import sweeps
from tests.orchestrator.cli.test_help import COMMANDS

SLOW = (
    *("ray", "jax", "flax", "optuna", "mlflow", "pandas", "plotly", "sklearn", "scipy.special"),
    *("scipy.optimize", "alembic", "fastapi"),
)
"""Modules that take seconds, or that only a driver or a service needs."""

LOCAL = ("sqlalchemy", "numpy", "ruamel", "fsspec", "orchestrator.api", "orchestrator.config")
"""Modules that verbs on this machine need, and verbs of a remote service do not. Typer imports pydantic."""

CODE = """
import contextlib, io, shlex, sys
from orchestrator.cli.app import run_command
for command in sys.argv[2:]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = run_command(shlex.split(command))
    print(command, code, "|", *sorted(set(sys.argv[1].split()) & set(sys.modules)))
    print(printed.getvalue(), file=sys.stderr)
"""


def imported(commands: Sequence[str], modules: Sequence[str], folder: Path) -> list[str]:
    """Run commands in one process; return each with its exit code and those of the modules it has by then."""
    words = [sys.executable, "-c", CODE, " ".join(modules), *commands]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return [line.rstrip() for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_a_verb_that_reads_a_ledger_imports_nothing_slow(tmp_path: Path) -> None:
    sweeps.filled(tmp_path / "mlruns")
    commands = ["list", "list --json", "status", "status --json", "queue", f"show {sweeps.SWEEP_ID}-0"]
    assert imported(commands, SLOW, tmp_path) == [f"{command} 0 |" for command in commands]


def test_json_for_a_program_imports_no_rich(tmp_path: Path) -> None:
    """Colours of a long list take seconds, and a pipe shows none."""
    sweeps.filled(tmp_path / "mlruns")
    commands = ["list --json", "status --json"]
    assert imported(commands, ("rich",), tmp_path) == [f"{command} 0 |" for command in commands]


VENDORS = ("psutil", "sqlalchemy", "typer")
FOLDERS = ("api", "cli", "client", "driver", "ledger", "report", "service", "session", "sharing", "storage")

MAY_IMPORT = {
    "--help": (
        *("rich", "typer", "attr", "markdown_it", "mdurl", "pygments"),
        *(f"orchestrator.{name}" for name in ("cli", "client", "ledger", "session", "sharing")),
    ),
    "list": (*VENDORS, *(f"orchestrator.{name}" for name in (*FOLDERS, "tracking"))),
    "status": (*VENDORS, *(f"orchestrator.{name}" for name in (*FOLDERS, "config", "tracking"))),
    "validate space.yaml": (
        *(*VENDORS, "filelock", "pydantic", "ruamel"),
        *(f"orchestrator.{name}" for name in (*FOLDERS, "config", "machines", "schedule", "scripts")),
        *(f"orchestrator.{name}" for name in ("study", "tracking", "training")),
    ),
}
"""Packages of vendors, and folders of the service, that the process of a verb may import."""

MOST_MODULES = {"--help": 380, "list": 470, "status": 470, "validate space.yaml": 632}
"""Most modules that the process of a verb may import, a few more than it does on Python 3.11."""

ALSO = (
    *("annotated_doc", "annotated_types", "pydantic_core", "shellingham", "typing_extensions"),
    "typing_inspection",
)
"""Packages that those of `VENDORS` import."""


@pytest.mark.slow
@pytest.mark.parametrize("command", MAY_IMPORT)
def test_a_light_verb_imports_its_packages_alone(command: str, tmp_path: Path) -> None:
    """The process of `list` waits neither for the reading of files, nor for rich, nor for pydantic."""
    sweeps.filled(tmp_path / "mlruns")
    (tmp_path / "train.py").write_text("")
    (tmp_path / "space.yaml").write_text(
        "trainable: {command: [python, train.py, '{args}']}\nsearch: {lr: {log_uniform: [1e-4, 1e-2]}}\n"
        "objective: {minimize: loss}\ntraining: {steps: 8, interval: 1}\nbudget: {trials: 4}\n"
    )
    shown = f"""
import shlex, sys
from orchestrator.cli.app import run_command
code = run_command(shlex.split({command!r}))
print("modules", code, *sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", shown], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    label, code, *modules = done.stdout.splitlines()[-1].split()
    assert (label, code) == ("modules", "0"), done.stderr
    assert "sqlalchemy.dialects.postgresql" not in modules
    assert len(modules) <= MOST_MODULES[command]
    installed = packages_distributions().keys()
    vendors = {name.partition(".")[0] for name in modules} & installed
    own = {name.rpartition(".")[0] for name in modules if re.fullmatch(r"orchestrator\.\w+\.\w+", name)}
    unexpected = (vendors | own) - {*MAY_IMPORT[command], *ALSO, "orchestrator", "trainables"}
    assert {name for name in unexpected if not name.startswith(("_", "typing_"))} == set()


def test_help_and_version_import_no_verb(tmp_path: Path) -> None:
    commands = ["--version", "--help"]
    modules = [*SLOW, *LOCAL, "orchestrator.cli.sweep_verbs"]
    assert imported(commands, modules, tmp_path) == ["--version 0 |", "--help 0 |"]


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    ("line", "found", "unwanted"),
    [
        ("sweep st", {"status", "stop"}, ("orchestrator.cli.look", "orchestrator.cli.sweep_verbs")),
        ("sweep export", {"export", "export-study", "export-tensorboard"}, ("orchestrator.cli.file_verbs",)),
        ("sweep status --r", {"--root"}, ("orchestrator.cli.sweep_verbs",)),
        ("sweep cluster ", {"token", "leave"}, ("orchestrator.cli.look",)),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_imports_the_verb_of_the_line_alone(
    line: str, found: set[str], unwanted: tuple[str, ...], shell: str, tmp_path: Path
) -> None:
    last = len(line.split(" ")) - 1
    asked = (
        {"COMP_WORDS": line, "COMP_CWORD": str(last)} if shell == "bash" else {"_TYPER_COMPLETE_ARGS": line}
    )
    code = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from orchestrator.cli.app import run_command
sys.exit(run_command([]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, **asked, "_SWEEP_COMPLETE": f"complete_{shell}"},
        capture_output=True,
        text=True,
        check=False,
    )
    for word in found:
        assert word in done.stdout
    assert {*SLOW, "orchestrator.api.local", *unwanted} & set(done.stderr.split()) == set()


def test_a_verb_of_a_remote_service_imports_only_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing listens at the address. A file is read first, because it is sent with the request."""
    monkeypatch.setenv("SWEEP_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("SWEEP_TOKEN", "no-token")
    (tmp_path / "space.yaml").write_text("task: copy\n")
    words = {
        "run": "space.yaml",
        "submit": "space.yaml",
        "validate": "space.yaml",
        "move": "copy-1 idle",
        "try": "copy-1 dropout=0",
        "compare": "copy-1",
        "replay": "copy-1",
        "show": "0",
        "logs": "0",
        "quota": "ada",
        "user add": "ada",
        "user revoke": "ada",
        "sql": "select",
        **dict.fromkeys(("resume", "retry-failed", "stop", "follow", "report", "note"), "copy-1"),
        **dict.fromkeys(("archive", "delete"), "copy-1"),
    }
    verbs = [verb for verb, command in COMMANDS.items() if "server" in {each.name for each in command.params}]
    commands = [f"{verb} {words.get(verb, '')}".strip() for verb in verbs]
    assert imported(commands, [*SLOW, *LOCAL], tmp_path) == [f"{command} 4 |" for command in commands]


@pytest.mark.slow
def test_a_refused_file_imports_neither_the_ledger_nor_the_driver(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("task: nothing\n")
    unwanted = ["sqlalchemy", "fsspec", "orchestrator.driver.run", "orchestrator.report.summary"]
    commands = ["validate bad.yaml", "validate missing.yaml"]
    assert imported(commands, [*SLOW, *unwanted], tmp_path) == [f"{command} 2 |" for command in commands]
