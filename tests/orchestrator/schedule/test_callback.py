"""What Ray writes of a dead attempt is told apart."""

from __future__ import annotations

import pytest
from ray.tune.experiment import Trial

from orchestrator.schedule.callback import cause_of, forget_statistics

KILLED = """Failure # 1 (occurred at 2026-11-21_12-43-04)
The actor died unexpectedly before finishing this task.
	class_name: Worker
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail:
Worker unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) the
process was killed by the OOM killer due to high memory usage, (2) ray stop --force was called
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (KILLED, "worker lost"),
        (
            "Task was killed due to the node running low on memory.\nMemory on the node was 22 GB",
            "out of memory",
        ),
        ("The actor is dead because its node has died. Node Id: 1f2e", "node lost"),
        (
            "The actor 59a2 is unavailable: The actor is temporarily unavailable: RpcError: Socket closed",
            "node lost",
        ),
        ("Failure # 1 (occurred at ...)\nZeroDivisionError: division by zero", "error"),
    ],
)
def test_cause(text: str, cause: str) -> None:
    assert cause_of(text)[0] == cause


def test_message_is_what_happened_not_when() -> None:
    assert cause_of(KILLED)[1] == "The actor died unexpectedly before finishing this task."


def test_an_ended_attempt_is_small() -> None:
    """What Tune keeps of it to the end of a sweep of thousands."""
    trial = Trial("anything", stub=True)
    trial.run_metadata.last_result = {f"metric/{number}": 0.5 for number in range(10)}
    for name, value in trial.run_metadata.last_result.items():
        trial.run_metadata.update_metric(name, value)
    before = len(trial.run_metadata.get_json_state())
    forget_statistics(trial)
    assert len(trial.run_metadata.get_json_state()) < before / 3
