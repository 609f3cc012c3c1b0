"""Register a trainable under a common name, and run it once a line is read."""

import sys
import tempfile

from orchestrator.machines.hardware import Hardware
from orchestrator.schedule import environment

environment.prepare(sys.argv[1])
from ray import tune

from orchestrator.schedule import cluster

own = sys.argv[2]
with cluster.connected(Hardware(cpus=2, gpus=0)), tempfile.TemporaryDirectory() as folder:
    tune.register_trainable("one-name", lambda config: {"job": own})
    print("registered", flush=True)
    sys.stdin.readline()
    [result] = tune.Tuner("one-name", run_config=tune.RunConfig(storage_path=folder, verbose=0)).fit()
    print(result.metrics["job"], flush=True)
    sys.stdin.read()
