"""The planted defects: each patch still applies to the product, so that `make test-mutants` can run it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.simulation.mutants import PATCHES, ROOT, size_of
from tests.simulation.runs import LENDING

PATCH_FILES = sorted(PATCHES.glob("*.patch"))

REINTRODUCED = {"1", "2", "3", "4", "5", "6", "9", "12"}
"""Fixed defects, by their numbers in docs/faults.md, that the simulation must find again."""

LEAST_PLANTED = 4
"""Least number of patches that plant a defect which the product never had; letters name them."""


@pytest.mark.parametrize("patch", PATCH_FILES, ids=lambda patch: patch.stem)
def test_a_patch_applies_and_changes_the_product(patch: Path) -> None:
    command = ["git", "apply", "--check", "--numstat", str(patch)]
    applied = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert applied.returncode == 0, applied.stderr
    changed = [line.split("\t")[2] for line in applied.stdout.splitlines()]
    assert any(file.startswith("orchestrator/") for file in changed), changed


OF_LENDING = {
    "freed-while-used",
    "killed-after-return",
    "late-answer-taken",
    "loan-not-checked",
    "report-not-checked",
    "returned-while-lent",
    "two-borrowers",
}
"""Patches without one of the checks by which a warm worker has one driver, and a report one attempt."""


def test_each_check_of_lending_has_a_patch_without_it() -> None:
    names = {patch.stem.removeprefix("lending-") for patch in PATCH_FILES if size_of(patch) == LENDING}
    assert names >= OF_LENDING


def test_each_defect_that_must_be_found_again_has_a_patch() -> None:
    names = {patch.stem.partition("-")[0] for patch in PATCH_FILES}
    assert names >= REINTRODUCED
    assert sum(name.isalpha() for name in names) >= LEAST_PLANTED
