"""Print as JSON where Tune places trials that avoid a node, on a cluster of two."""

import json
import os
import sys

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
        return tune.PlacementGroupFactory([{"CPU": 1}], **placement.of_bundles([held]))

    def step(self):
        import time

        time.sleep(0.1)
        return {"done": Path(folder, "done").exists(), "step": self.iteration}


class Looking(tune.Callback):
    def on_step_end(self, iteration, trials, **_):
        placed = ray_private.nodes_of(scheduler.controller, [trial.trial_id for trial in trials])
        if all(trial.status != "RUNNING" for trial in trials) or len(trials) < 2 or "waiting" in seen:
            return
        names = [trial.trial_id for trial in trials]
        seen["placed"] = list(placed.values()) == [(other,)]
        seen["waiting"] = ray_private.waiting_for_resources(scheduler.controller, names)
        seen["left"] = [name not in placed for name in seen["waiting"]]
        ray_private.take_back(scheduler.controller, seen["waiting"])
        seen["then"] = ray_private.waiting_for_resources(scheduler.controller, names)
        controller = scheduler.controller
        seen["staged"] = len(controller._staged_trials)
        seen["kept for none"] = controller._actor_cache.total_max_objects
        Path(sys.argv[1], "done").touch()

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
