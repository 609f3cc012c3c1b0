"""Print as JSON what a warm worker keeps of the drivers that use it."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from orchestrator.ledger.holder import Holder
from orchestrator.machines.hardware import Hardware
from orchestrator.schedule import environment

environment.prepare(Path(sys.argv[1]) / "token")
import ray

from orchestrator.schedule import cluster
from orchestrator.schedule.loans import Loan, WrongLoan
from orchestrator.schedule.warm_pool import of_this_ray
from orchestrator.system import System


def probe():
    return os.getpid(), os.environ.get("SOME_API_KEY")


def used(pool):
    worker = pool.take()
    answer = ray.get(worker.run(probe))
    pool.give_back(worker)
    return answer


def ends(pid):
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not Path(f"/proc/{pid}").exists()


os.environ |= {"SOME_API_KEY": "of this sweep", "SWEEP_VARIABLES": "SOME_API_KEY"}
seen = {}
with cluster.connected(Hardware(cpus=2, gpus=0)):
    mine, other = of_this_ray(60.0, "compilations"), of_this_ray(60.0, "compilations")
    first = used(mine)
    worker = mine.take()
    other._claim()
    seen["claimed by another"] = len(other._idle)
    mine._claim()
    seen["claimed by its own driver"] = len(mine._idle)
    loan = worker.loan
    mine.give_back(worker)
    mine._environment = {}
    again = used(mine)
    seen["same process"] = first[0] == again[0]
    seen["secrets"] = [first[1], again[1]]
    other._claim()
    seen["claimed when idle"] = len(other._idle)
    for call in (worker.train, worker.stop, lambda: worker.run(probe), worker.get_auto_filled_metrics):
        try:
            ray.get(call())
        except WrongLoan as error:
            seen["earlier loan"] = seen.get("earlier loan", 0) + (error.cause.called_for == loan)
    worker.give_back()
    third = of_this_ray(60.0, "compilations")
    third._claim()
    seen["freed by an earlier loan"] = len(third._idle)
    other.close()
    elsewhere = of_this_ray(60.0, "other compilations")
    elsewhere._claim()
    seen["claimed for another folder"] = len(elsewhere._idle)
    unused = mine.take()
    try:
        ray.get(unused.train())
    except RuntimeError as error:
        seen["unused"] = type(error.cause).__name__
    mine.give_back(unused)

    sleeper = subprocess.Popen(["sleep", "600"])
    dies = of_this_ray(60.0, "compilations")
    borrower = replace(Holder.here(), pid=sleeper.pid, start=System().start_of(sleeper.pid)).write()
    dies._loan = lambda: Loan(borrower)
    dies.take()
    time.sleep(1.5)
    seen["lives with its driver"] = Path(f"/proc/{first[0]}").exists()
    sleeper.kill()
    sleeper.wait()
    seen["ends with its driver"] = ends(first[0])
    short = of_this_ray(0.5, "compilations")
    seen["ends when idle"] = ends(used(short)[0])
print(json.dumps(seen))
