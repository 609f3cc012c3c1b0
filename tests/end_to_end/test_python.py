"""A sweep is run, stopped, resumed and evaluated from Python, outside the main thread."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.commands import ROOT, Commands

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]


def test_a_sweep_in_a_thread(commands: Commands) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.programs.sweep_in_a_thread"],
        cwd=ROOT,
        env={
            **os.environ,
            "SWEEP_ROOT": str(commands.root),
            "SWEEP_DATA": str(commands.shared / "data"),
            "JAX_COMPILATION_CACHE_DIR": os.environ["JAX_COMPILATION_CACHE_DIR"],
            "SWEEP_TEST_MARK": commands.mark,
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    words = done.stdout.split()
    assert words[0] == "stopping"
    assert words[2:] == ["INTERRUPTED", "COMPLETE"]
    assert Path(commands.root / "reports").is_dir()
