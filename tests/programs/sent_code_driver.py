"""Print as JSON what a worker sees of a folder of code that is sent to it."""

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from orchestrator.machines.hardware import Hardware
from orchestrator.machines.joining import joined
from orchestrator.schedule import environment

environment.prepare(Path(sys.argv[1]) / "token")
import ray

from orchestrator.schedule import cluster, sent_code
from orchestrator.scripts.script_attempt import OwnProcess
from tests.attempts import assignment
from trainables.trial import Clock, ScriptSettings

code, place = Path(sys.argv[2]), Path(sys.argv[3])


def look(folder):
    import queue

    found = Path(sent_code.found(folder, ("python", "train.py")))
    return str(found), queue.__file__


def files(folder):
    found = Path(sent_code.found(folder, "train.py:train"))
    return str(found), sorted(str(path.relative_to(found)) for path in found.rglob("*") if path.is_file())


def trained(assigned):
    own = OwnProcess()
    try:
        return own.advance(sent_code.on_this_machine(assigned))
    finally:
        own.release()


hardware, seen = Hardware(cpus=2, gpus=0), {}
with joined(hardware, environment.of_head()) as head:
    os.environ["RAY_ADDRESS"] = head.address
    with cluster.connected(hardware, code):

        def run(work, *given):
            return ray.get(ray.remote(num_cpus=1)(work).remote(*given))

        seen["same code"], seen["queue"] = run(look, str(code))
        settings = ScriptSettings(
            function="train.py:train",
            command=None,
            shell=False,
            folder=str(code),
            params={"rate": 2.0},
            training=Clock(4, 2),
            seed=1,
        )
        assigned = replace(
            assignment(place, 0),
            settings=settings,
            gpu=0.0,
            checkpoints=str(place / "kept"),
            log=str(place / "trial.log"),
        )
        shutil.rmtree(code)
        seen["gone"], seen["files"] = run(files, str(code))
        outcome = run(trained, assigned)
        seen["outcome"] = outcome.message or outcome.metrics["val/loss"]
print(json.dumps(seen))
