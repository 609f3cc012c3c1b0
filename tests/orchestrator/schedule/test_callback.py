"""What Ray writes of a dead attempt is told apart."""

from __future__ import annotations

import pytest

from orchestrator.schedule.callback import cause_of

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
        ("Failure # 1 (occurred at ...)\nZeroDivisionError: division by zero", "error"),
    ],
)
def test_cause(text: str, cause: str) -> None:
    assert cause_of(text)[0] == cause


def test_message_is_what_happened_not_when() -> None:
    assert cause_of(KILLED)[1] == "The actor died unexpectedly before finishing this task."
