"""A driver that leaves a worker with a GPU warm."""

import os
import sys
from pathlib import Path

from orchestrator.machines.hardware import Hardware
from orchestrator.schedule import environment

environment.prepare(Path(sys.argv[1]) / "token")
import ray

from orchestrator.schedule import cluster
from orchestrator.schedule.warm_pool import of_this_ray


def probe():
    return os.getpid(), os.environ["CUDA_VISIBLE_DEVICES"]


with cluster.connected(Hardware(cpus=1, gpus=1)):
    pool = of_this_ray(600.0, "compilations", has_gpu=True)
    for _ in sys.stdin:
        worker = pool.take()
        print(*ray.get(worker.run(probe)), flush=True)
        pool.give_back(worker)
