"""What Ray writes of a dead attempt is told apart."""

from __future__ import annotations

import pytest

from orchestrator.schedule.callback import cause_of


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
            "out of memory",
        ),
        (
            "The actor died unexpectedly before finishing this task.\nray.exceptions.ActorDiedError: x",
            "worker lost",
        ),
        (
            "ray.exceptions.ActorDiedError: The actor died because its node has died. The node was lost",
            "node lost",
        ),
        ("Traceback\nZeroDivisionError: division by zero", "error"),
    ],
)
def test_cause(text: str, cause: str) -> None:
    assert cause_of(text)[0] == cause


def test_message_is_the_last_line() -> None:
    assert (
        cause_of("Traceback\n\nZeroDivisionError: division by zero\n")[1]
        == "ZeroDivisionError: division by zero"
    )
