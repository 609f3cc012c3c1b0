"""Print as JSON what a real cluster answers to every private interface of Ray that is used."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from orchestrator.machines import drain
from orchestrator.machines.hardware import Hardware
from orchestrator.schedule import environment

environment.prepare(Path(sys.argv[1]) / "token")
import ray
from ray._private.worker import print_to_stdstream

from orchestrator.schedule import cluster, ray_private

seen = {}


def handler():
    # The address of the function that the kernel calls at SIGTERM.
    action = (ctypes.c_void_p * 32)()
    ctypes.CDLL(None).sigaction(signal.SIGTERM, None, action)
    return action[0]


def until(condition):
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


signal.signal(signal.SIGTERM, lambda number, frame: None)
own = handler()
with cluster.connected(Hardware(cpus=2, gpus=0)):
    seen["handlers"] = [handler() == own]
    node = ray.get_runtime_context().get_node_id()
    head = ray.get_runtime_context().gcs_address
    host, port = head.split(":")
    seen["published"] = [sorted(ray_private.published_stop("s"))]
    ray_private.publish_stop("s", ["two", "one"])
    seen["published"] += [sorted(ray_private.published_stop(sweep)) for sweep in ("s", "t")]
    ray_private.withdraw_stop("s")
    seen["published"].append(sorted(ray_private.published_stop("s")))
    seen["address"] = ray_private.host_and_port(f"localhost:{port}") == head
    state = ray_private.cluster_state(head)
    seen["nodes"] = [(address == host, total["CPU"]) for address, total in state.nodes]
    seen["addable"] = state.addable

    class Process:
        def id(self):
            return os.getpid()

        def die(self):
            os.kill(os.getpid(), 9)

        def abort(self):
            os.write(2, b"no such flag\n")
            os.abort()

    groups = [ray_private.has_placement_group()]
    group = ray.util.placement_group([{"CPU": 1}])
    ray.get(group.ready())
    groups.append(ray_private.has_placement_group())
    ray.util.remove_placement_group(group)
    seen["groups"] = groups
    wants = [ray_private.wants_gpu()]
    group = ray.util.placement_group([{"GPU": 0.5}])
    wants.append(until(ray_private.wants_gpu))
    ray.util.remove_placement_group(group)
    wants.append(until(lambda: not ray_private.wants_gpu()))
    task = ray.remote(num_gpus=1)(lambda: None).remote()
    wants.append(until(ray_private.wants_gpu))
    ray.cancel(task)
    seen["wants"] = wants
    actor = ray.remote(num_cpus=1)(Process).remote()
    ray.get(actor.id.remote())
    time.sleep(1)
    seen["pool"] = len(ray_private.pool_id()), ray_private.pool_id() == ray_private.pool_id()
    seen["free"] = ray_private.free_resources()[node]["CPU"]
    try:
        ray.get(actor.die.remote())
    except ray.exceptions.RayActorError as error:
        seen["death"] = ray_private.cause_of_death(f"Failure # 1\n{error}")
    try:
        ray.get(ray.remote(num_cpus=0)(Process).remote().abort.remote())
    except ray.exceptions.RayActorError as error:
        seen["words"] = ray_private.last_words(str(error))
        seen["elsewhere"] = ray_private.last_words("\tpid: 7\n\tip: 192.0.2.99\n")
    print_to_stdstream({"lines": ["raylet", ""], "pid": "raylet", "is_err": False}, ignore_prefix=False)
    seen["draining"] = [list(ray_private.draining_nodes())]
    ray_command = str(Path(sys.executable).with_name("ray"))
    where = ["--address", head, "--node-id", node, "--deadline-remaining-seconds", "600"]
    why = ["--reason", drain.REASON, "--reason-message", "a test"]
    drained = set()
    busy = ray.remote(num_cpus=1)(Process).remote()  # an idle node would be gone at once
    ray.get(busy.id.remote())
    command = subprocess.Popen([ray_command, "drain-node", *where, *why], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not drained and time.monotonic() < deadline:
        time.sleep(0.1)  # leaves the processor to the command
        drained = ray_private.draining_nodes()
    seen["draining"].append([name == node for name in drained])
    command.wait()
seen["handlers"].append(handler() == own)
print(json.dumps(seen))
