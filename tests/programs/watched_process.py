"""Print what a process notices of the requests to stop that are published."""

import os
import signal
import time

from orchestrator.training import process

process.POLL_SECONDS = 0.01
standing = {"a": (), "b": ()}


def published(sweep_id):
    if standing[sweep_id] is None:
        raise ConnectionError("the head is unreachable")
    return standing[sweep_id]


def state():
    time.sleep(0.3)
    asked = [process.stop_requested("a", "a-1"), process.stop_requested("a", "a-2")]
    return *asked, process.stop_requested("b", "b-1"), process.terminating()


process.handle_sigterm()
process.watch("a", published)
process.watch("b", published)
states = [state()]
for standing["a"] in (("*",), None, ("*",), (), ("a-2",)):
    states.append(state())
os.kill(os.getpid(), signal.SIGTERM)
states.append(state())
print(states)
