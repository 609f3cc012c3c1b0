"""A process that is told to go, or whose driver wishes every trial to stop."""

from __future__ import annotations

import subprocess
import sys

ASKED = """
import os, signal, time
from orchestrator.training import stop_signal
stop_signal.LOOK_SECONDS = 0.01
wishes = [False]
def wished():
    if wishes[0] is None:
        raise ConnectionError("the head is away")
    return wishes[0]
def seen():
    time.sleep(0.3)
    return stop_signal.asked(), stop_signal.told_to_go()
stop_signal.watch(wished)
told = [seen()]
for wish in (True, None, True, False):
    wishes[0] = wish
    told.append(seen())
os.kill(os.getpid(), signal.SIGTERM)
told.append(seen())
print(told)
"""


def test_a_wish_comes_and_goes_and_a_signal_stays() -> None:
    """While nobody can tell, nobody wishes; after SIGTERM the process lives, and begins nothing more."""
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, check=True)
    wished, nothing = "(True, False)", "(False, False)"
    expected = ", ".join([nothing, wished, nothing, wished, nothing, "(True, True)"])
    assert done.stdout.strip() == f"[{expected}]"
