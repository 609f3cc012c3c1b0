"""Processes that share a ledger, for the tests of their interaction."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Run a program in Python, with its arguments in `sys.argv[1:]`."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def line(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def answer(process: subprocess.Popen[str]) -> str:
    """Wait for a process to succeed and return the last line that it printed."""
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return out.strip().rpartition("\n")[2]
