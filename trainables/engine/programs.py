"""From a trial's settings to the program that an engine runs for it."""

from __future__ import annotations

from typing import Any

from trainables.engine.custom import CustomProgram
from trainables.engine.network import NetworkProgram
from trainables.engine.slot_program import SlotProgram
from trainables.program import loaded
from trainables.trial import ProgramSettings, TrialSettings


def program_of(settings: TrialSettings | ProgramSettings, data: Any) -> SlotProgram:
    """Return the program of a static choice.

    Args:
        settings: any trial's of the static choice.
        data: `TaskData` of a network, `ProgramData` of a user's program.

    Raises:
        Refusal: the user's program cannot be imported or constructed.
    """
    if isinstance(settings, ProgramSettings):
        return CustomProgram(loaded(settings), settings)
    return NetworkProgram.of(settings, data.signature, data.train)
