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
from orchestrator.schedule.placement import Placement, of_bundle, selector
from orchestrator.schedule.worker import Worker
from tests.orchestrator.session.sessions import Sessions, launch

TWO_NODES = """
import json, os, sys
from orchestrator.schedule import environment
os.environ["RAY_ADDRESS"] = "to be known"
from pathlib import Path
environment.prepare(Path(sys.argv[1]) / "token")
import ray
from ray import tune
from ray.cluster_utils import Cluster
from orchestrator.schedule import placement, ray_private

small = {"object_store_memory": 80 * 1024 * 1024}
nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **small})
nodes.add_node(num_cpus=1, **small)
ray.init(nodes.address, log_to_driver=False, logging_level="CRITICAL")
folder = sys.argv[1]  # that of a worker is another
held, other = sorted(node["NodeID"] for node in ray.nodes())
seen = {"labels": [node["Labels"][placement.NODE_LABEL] == node["NodeID"] for node in ray.nodes()]}

class Actor:
    def ready(self):
        pass

actor = ray.remote(Actor).options(num_cpus=0, label_selector=placement.selector([held])).remote()
ray.get(actor.ready.remote())
seen["actor"] = ray_private.node_of(actor) == other
ray.kill(actor)

class Trainable(tune.Trainable):
    @classmethod
    def default_resource_request(cls, config):
        return tune.PlacementGroupFactory([{"CPU": 1}], **placement.of_bundle([held]))

    def step(self):
        import time
        time.sleep(0.1)
        return {"done": os.path.exists(folder + "/done"), "step": self.iteration}

class Looking(tune.Callback):
    def on_step_end(self, iteration, trials, **_):
        placed = ray_private.nodes_of(scheduler.controller, [trial.trial_id for trial in trials])
        if all(trial.status != "RUNNING" for trial in trials) or len(trials) < 2 or "waiting" in seen:
            return
        names = [trial.trial_id for trial in trials]
        seen["placed"] = list(placed.values()) == [other]
        seen["waiting"] = ray_private.waiting_for_resources(scheduler.controller, names)
        seen["left"] = [name not in placed for name in seen["waiting"]]
        ray_private.take_back(scheduler.controller, seen["waiting"])
        seen["then"] = ray_private.waiting_for_resources(scheduler.controller, names)
        controller = scheduler.controller
        seen["staged"] = len(controller._staged_trials)
        seen["kept for none"] = controller._actor_cache.total_max_objects
        open(sys.argv[1] + "/done", "w").close()

    def on_trial_complete(self, iteration, trials, trial, **_):
        seen.setdefault("completed", []).append(trial.trial_id)

class Scheduler(tune.schedulers.FIFOScheduler):
    controller = None

    def on_trial_add(self, controller, trial):
        self.controller = controller

scheduler = Scheduler()
tune.Tuner(
    Trainable,
    tune_config=tune.TuneConfig(num_samples=2, scheduler=scheduler, reuse_actors=True),
    run_config=tune.RunConfig(storage_path=sys.argv[1], callbacks=[Looking()], verbose=0),
).fit()
seen["completed first"] = seen.pop("completed")[0] in seen["waiting"]
seen["waiting"] = len(seen["waiting"])
ray.shutdown()
nodes.shutdown()
print(json.dumps(seen))
"""


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
        [sys.executable, "-c", TWO_NODES, str(folder)],
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
    assert of_bundle([]) == selector([]) == {}
    assert of_bundle(["b", "a"]) == {"bundle_label_selector": [{"ray.io/node-id": "!in(a,b)"}]}


def test_an_assignment_avoids_the_nodes_that_are_held_for_others_when_it_is_launched(
    assignment: Assignment,
) -> None:
    placement = Placement()
    assert placement.avoiding(assignment) == assignment
    placement.closed = frozenset({"b", "a"})
    assert placement.avoiding(assignment) == replace(assignment, avoided=("a", "b"))
    assert Assignment.from_config(placement.avoiding(assignment).to_config()).avoided == ("a", "b")
