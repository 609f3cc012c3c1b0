"""Attempts keep off the nodes that are held for other sweeps."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.assignment import Assignment
from orchestrator.schedule.placement import Placement, of_bundles, selector
from orchestrator.schedule.worker import Worker
from tests.orchestrator.session.sessions import Sessions, launch


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder with a short path, for the sockets of Ray."""
    made = Path(tempfile.mkdtemp(prefix="pl-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.ray
@pytest.mark.slow
def test_trials_keep_off_a_node_and_one_that_waits_is_taken_back(folder: Path) -> None:
    """Two nodes of one processor and two trials that avoid one: the second waits, and Tune forgets it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.programs.two_nodes", str(folder)],
        env={**os.environ, "RAY_TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "labels": [True, True],
        "actor": True,
        "placed": True,
        "waiting": 1,
        "left": [True],
        "then": [],
        "staged": 0,
        "kept for none": 0,
        "completed first": True,
    }


@pytest.fixture
def assignment(tmp_path: Path) -> Assignment:
    sessions = Sessions(tmp_path)
    return launch(sessions.open(sessions.sweep(1)))


def test_what_a_worker_asks_of_ray_names_the_nodes_that_it_avoids(assignment: Assignment) -> None:
    """Without a hold it asks what it always did, so that Tune uses its worker again."""
    free = Worker.default_resource_request(assignment.to_config())
    kept_off = Worker.default_resource_request(replace(assignment, avoided=("a", "b")).to_config())
    assert free == Worker.default_resource_request(replace(assignment, avoided=()).to_config())
    assert kept_off != free
    assert of_bundles([]) == selector([]) == {}
    avoiding = {"ray.io/node-id": "!in(a,b)"}
    assert of_bundles(["b", "a"]) == {"bundle_label_selector": [avoiding]}
    apart = {"strategy": "STRICT_SPREAD", "bundle_label_selector": [avoiding, avoiding]}
    assert of_bundles(["b", "a"], 2) == apart, "an attempt on two nodes, none of which is avoided"


def test_an_assignment_avoids_the_nodes_that_are_held_for_others_when_it_is_launched(
    assignment: Assignment,
) -> None:
    placement = Placement()
    assert placement.avoiding(assignment) == assignment
    placement.closed = frozenset({"b", "a"})
    assert placement.avoiding(assignment) == replace(assignment, avoided=("a", "b"))
    assert Assignment.from_config(placement.avoiding(assignment).to_config()).avoided == ("a", "b")
