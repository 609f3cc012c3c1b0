"""Commands whose output nobody reads, or whose disk is full: no traceback, and codes as other tools have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest

from orchestrator.api import serving
from orchestrator.cli.printing import print_line
from orchestrator.errors import Exit
from tests import sweeps

SWEEP = [sys.executable, "-m", "orchestrator.sweep"]


@contextmanager
def output(kind: str) -> Iterator[int]:
    """Yield the descriptor of a pipe without a reader, or of a full disk."""
    if kind == "closed":
        reading, descriptor = os.pipe()
        os.close(reading)
    else:
        descriptor = os.open("/dev/full", os.O_WRONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(sweeps.filled(tmp_path_factory.mktemp("output") / "mlruns").root)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("words", [["list"], ["status", "--json"], ["list", "--help"]], ids=" ".join)
@pytest.mark.parametrize(
    "unbuffered", ["", pytest.param("1", marks=pytest.mark.slow)], ids=["buffered", "unbuffered"]
)
def test_a_command_without_a_reader_ends_quietly(root: str, words: list[str], unbuffered: str) -> None:
    environment = {**os.environ, "SWEEP_ROOT": root, "PYTHONUNBUFFERED": unbuffered}
    with output("closed") as descriptor:
        done = subprocess.run(
            [*SWEEP, *words],
            stdout=descriptor,
            stderr=PIPE,
            text=True,
            env=environment,
            check=False,
        )
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_head_takes_one_line_of_a_list(root: str) -> None:
    command = f"{sys.executable} -m orchestrator.sweep list --root {root} | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert (done.returncode in {0, 141}, done.stderr) == (True, ""), "0 if it has ended before `head`"
    assert "sweep" in done.stdout


@pytest.mark.parametrize(
    "words", [["list"], pytest.param(["status", "--json"], marks=pytest.mark.slow)], ids=" ".join
)
def test_a_full_disk_is_one_line_and_the_code_of_a_full_disk(root: str, words: list[str]) -> None:
    with output("full") as descriptor:
        done = subprocess.run(
            [*SWEEP, *words, "--root", root],
            stdout=descriptor,
            stderr=PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == Exit.RESUMABLE
    [line] = done.stderr.splitlines()
    assert line.startswith("standard output cannot be written (got No space left on device).")


@pytest.mark.parametrize("kind", ["closed", "full"])
def test_a_refusal_keeps_its_code_without_standard_error(root: str, kind: str) -> None:
    with output(kind) as descriptor:
        done = subprocess.run([*SWEEP, "status", "nothing", "--root", root], stderr=descriptor)
    assert done.returncode == Exit.BAD_INPUT


def test_a_command_without_standard_output_does_its_work(root: str) -> None:
    command = f"{sys.executable} -m orchestrator.sweep list --root {root} >&-"
    done = subprocess.run(["bash", "-c", command], stderr=PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")


DRIVER = """
import sys
from orchestrator.cli.printing import print_line
from orchestrator.driver.shutdown import run_and_exit
from orchestrator.output import protect

def run(arguments):
    for number in range(1000):
        print_line(f"trial {number}")
        sys.stdout.write("what a driver prints\\n")
        sys.stdout.flush()
    return 3

protect(goes_on=True)
run_and_exit(run, [])
"""


@pytest.mark.parametrize("kind", ["full", pytest.param("closed", marks=pytest.mark.slow)])
def test_a_driver_goes_on_without_its_output(kind: str) -> None:
    with output(kind) as descriptor:
        done = subprocess.run([sys.executable, "-c", DRIVER], stdout=descriptor, stderr=PIPE, text=True)
    assert (done.returncode, done.stderr) == (3, "")


@pytest.mark.slow
def test_a_service_goes_on_without_its_output(tmp_path: Path) -> None:
    root = tmp_path / "mlruns"
    with (
        output("closed") as descriptor,
        subprocess.Popen([*SWEEP, "serve", "--root", str(root)], stdout=descriptor) as process,
    ):
        last = time.monotonic() + 60.0
        while serving.running(root=root) is None and process.poll() is None and time.monotonic() < last:
            time.sleep(0.05)
        assert process.poll() is None
        process.terminate()
        assert process.wait(60) in {Exit.COMPLETE, Exit.RESUMABLE}, "the latter if the machine is too busy"


def test_a_name_between_colons_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Rich would print a train."""
    print_line("train.py:train: 3 results")
    assert capsys.readouterr().out == "train.py:train: 3 results\n"
