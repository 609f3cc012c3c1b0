"""Errors after which the same command can resume a sweep, and what a driver imports."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.driver.log import Observer
from orchestrator.driver.run import _resumable
from orchestrator.errors import NoSpace


class Screen(Observer):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.mark.parametrize(
    "error",
    [
        NoSpace("ledger", "needs space to write", "a full disk", "Free some."),
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "report.html"),
    ],
)
def test_a_full_disk_ends_a_driver_with_one_line(error: Exception) -> None:
    """The ledger refuses it as NoSpace; the report at the end of a sweep is a file like any other."""
    screen = Screen()
    with _resumable(cast(Any, SimpleNamespace(observer=screen))):
        raise error
    (line,) = screen.lines
    assert line.endswith("the same command resumes the sweep.")


def test_another_error_of_a_file_is_not_hidden() -> None:
    with pytest.raises(PermissionError), _resumable(cast(Any, SimpleNamespace(observer=Screen()))):
        raise PermissionError(errno.EACCES, "not yours")


@pytest.mark.slow
def test_a_driver_that_searches_has_not_imported_what_draws_its_report() -> None:
    """Plotly and SciPy's functions are an eighth of a driver's memory, while its trials run for days."""
    late = "{'plotly', 'scipy.special'}"
    code = f"import sys, orchestrator.driver.execution; print(sorted({late} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
