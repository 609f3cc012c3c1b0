"""The sizes of networks, counted by a process of its own, because a driver does not import JAX."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict

from orchestrator import concealment
from orchestrator.errors import BadInput, Unfinished
from orchestrator.training import costs
from orchestrator.training.process import worker_environment
from trainables.cost import Cost
from trainables.data.task import Signature
from trainables.trial import TrialSettings

_MODULE = costs.__name__


def counted(settings: Sequence[TrialSettings], signature: Signature, *, work: bool = False) -> list[Cost]:
    """Return what the static choice of each trial takes. Nothing is written.

    Args:
        settings: of the trials.
        signature: of their task.
        work: whether to count the work of a training step too, which compiles each of them.

    Raises:
        BadInput: a network cannot be built.
        Refusal: the process has answered for others.
        Unfinished: the process was ended by a signal, or has found too little memory.
    """
    named = {str(number): one for number, one in enumerate(settings)}
    document = {
        "settings": {name: asdict(one) for name, one in named.items()},
        "signature": asdict(signature),
        "compiled": work,
    }
    environment, secrets = concealment.parted({**os.environ, **worker_environment(0)})
    done = subprocess.run(
        [sys.executable, "-m", _MODULE],
        input=secrets.decode() + json.dumps(document),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        _check_end(done)
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise BadInput("model", "must be a network that can be built", lines[-1], "Change its options.")
    answer = json.loads(done.stdout)
    costs.check_names(answer, named)
    return [Cost.from_document(answer[name]) for name in named]


def _check_end(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode < 0:
        got = signal.Signals(-done.returncode).name
    elif "MemoryError" in done.stderr:
        got = "too little memory"
    else:
        return
    must, remedy = "must be counted before its process is ended", "Search fewer networks, or give it more."
    raise Unfinished("model", must, got, remedy)
